"""One model (or world model) on one part under one deployment, prepared once: what every question about it shares."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property, lru_cache

from capacity.catalog.calibrations import typical_share
from capacity.catalog.servers import server_with
from capacity.demand.decisions import check_world
from capacity.demand.operators import decoder_operators
from capacity.demand.placement import weight_shards
from capacity.engines.budget import Budget
from capacity.engines.builder import budget, memory_table
from capacity.engines.settings import engine_of, with_settings
from capacity.engines.table import MemoryTable
from capacity.errors import CapacityError
from capacity.estimate.assumptions import assumptions
from capacity.inputs import check_kind
from capacity.specs.deployment import Deployment
from capacity.specs.hardware import HardwareSpec
from capacity.specs.model import ModelSpec
from capacity.specs.world import Subject, WorldModelSpec, network
from capacity.supply.ceilings import Ceilings, bound_ceilings, measured_ceilings, ridge_point, sheet_ceilings
from capacity.supply.dequantised import dequantised_note, read_shares
from capacity.supply.links import Link, link_between, network_of
from capacity.supply.memory_side import memory_ceilings, without_peaks
from capacity.supply.paths import require_path
from capacity.units import Arithmetic


@dataclass(frozen=True, eq=False)
class Case:
    """The subject of every question. Compared by identity: `prepare` gives the same case for the same specs."""

    model: ModelSpec
    world: WorldModelSpec | None
    hardware: HardwareSpec
    deploy: Deployment

    @cached_property
    def subject(self) -> Subject:
        """The world model, or else the model."""
        return self.world or self.model

    @cached_property
    def assumed(self) -> tuple[str, ...]:
        """What the deployment leaves to defaults and no source states of the model, a line each."""
        return assumptions(self.subject, self.deploy)

    @cached_property
    def memory(self) -> MemoryTable:
        """Uses of the memory of one device, by the rules of the engine."""
        return memory_table(self.subject, self.deploy)

    @cached_property
    def budget(self) -> Budget:
        """Memory that the engine may plan with on one device."""
        return budget(self.hardware, self.deploy)

    @cached_property
    def arithmetic(self) -> frozenset[Arithmetic]:
        """How the operators of one decode step are stored and computed."""
        return frozenset(decoder_operators(self.model, self.deploy).arithmetic)

    @cached_property
    def compute_format(self) -> str:
        """The format in which most of a decode step of one sequence is computed.

        Raises
        ------
        CapacityError
            If the part has no path for it.
        """
        flop: dict[Arithmetic, float] = {}
        for cost in decoder_operators(self.model, self.deploy).costs:
            flop[cost.arithmetic] = flop.get(cost.arithmetic, 0.0) + cost.token_flop
        return require_path(self.hardware, max(flop, key=lambda item: flop[item]))

    @cached_property
    def decode_ceilings(self) -> Ceilings:
        """Ceilings of the bound of a decode step; of a part without peaks those of its memory."""
        if without_peaks(self.hardware):
            return memory_ceilings(self.hardware, self.arithmetic)
        return self.ceilings(self.arithmetic)[0]

    def ceilings(self, arithmetic: frozenset[Arithmetic]) -> tuple[Ceilings, Ceilings]:
        """Ceilings of a bound, and those of the datasheet, for some arithmetic."""
        return _ceilings(self, arithmetic)

    def measured_ceilings(self, arithmetic: frozenset[Arithmetic]) -> Ceilings | None:
        """Measured ceilings for some arithmetic, a typical share of the datasheet for what was not measured; None for a
        part without peaks."""
        return _measured_ceilings(self, arithmetic)

    @cached_property
    def ridge_flop_per_byte(self) -> float:
        """FLOP per byte at which compute time equals memory time in `compute_format`. [FLOP/B]"""
        return ridge_point(self.hardware, self.compute_format)

    @cached_property
    def link(self) -> Link | CapacityError:
        """The link that joins the devices of the replica, with the network of a server of this part where they are
        more than one server holds; or why none does."""
        links, devices = self.hardware.links, self.deploy.devices
        beyond = links is not None and links.domain_devices is not None and devices > links.domain_devices
        server = server_with(self.hardware.id) if beyond else None
        try:
            return link_between(self.hardware, devices, network_of(server) if server else None)
        except CapacityError as error:
            return error


@lru_cache(maxsize=512)
def _ceilings(case: Case, arithmetic: frozenset[Arithmetic]) -> tuple[Ceilings, Ceilings]:
    return bound_ceilings(case.hardware, arithmetic), sheet_ceilings(case.hardware, arithmetic)


@lru_cache(maxsize=512)
def _measured_ceilings(case: Case, arithmetic: frozenset[Arithmetic]) -> Ceilings | None:
    if without_peaks(case.hardware):
        return None
    ceilings, shares = measured_ceilings(case.hardware, arithmetic, typical_share()), read_shares(arithmetic)
    if not shares:
        return ceilings
    return replace(ceilings, read_share=shares, notes=(*ceilings.notes, dequantised_note(shares)))


def prepare(subject: Subject, hardware: HardwareSpec, deploy: Deployment) -> Case:
    """The case of these specs, checked, with the settings of the engine where none are stated.

    Deployments that set other fields to the same values are other cases.

    Parameters
    ----------
    subject : ModelSpec or WorldModelSpec
        What is served.
    hardware : HardwareSpec
        The part.
    deploy : Deployment
        Number formats, parallelism and limits.

    Raises
    ------
    CapacityError
        If the engine is unknown, or the model cannot have this deployment.
    """
    filled = with_settings(subject, deploy, hardware)
    return _prepared(subject, hardware, filled, frozenset(deploy.model_fields_set))


@lru_cache(maxsize=512)
def _prepared(subject: Subject, hardware: HardwareSpec, deploy: Deployment, fields_set: frozenset[str]) -> Case:
    check(subject, deploy)
    world = subject if isinstance(subject, WorldModelSpec) else None
    return Case(network(subject), world, hardware, deploy)


def check(subject: Subject, deploy: Deployment) -> None:
    """Refuse a deployment that this model cannot have, or an engine that is not described, before any number is made.

    Parameters
    ----------
    subject : ModelSpec or WorldModelSpec
        What is served.
    deploy : Deployment
        Number formats, parallelism and limits.

    Raises
    ------
    CapacityError
        One sentence.
    """
    engine_of(deploy)
    if isinstance(subject, WorldModelSpec):
        check_world(subject, deploy)
    weight_shards(network(subject), deploy)


def check_specs(subject: object, hardware: object, deploy: object) -> None:
    """Refuse arguments of a wrong kind before anything looks into them.

    Parameters
    ----------
    subject : object
        A ModelSpec or WorldModelSpec, or what was given for one.
    hardware : object
        A HardwareSpec, or what was given for one.
    deploy : object
        A Deployment, or what was given for one.

    Raises
    ------
    CapacityError
        One sentence with what is wanted and how to get it.
    """
    if not isinstance(subject, WorldModelSpec):
        check_kind("model", subject, ModelSpec)
    check_kind("hardware", hardware, HardwareSpec)
    check_kind("deploy", deploy, Deployment)
