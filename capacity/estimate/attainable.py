"""Attainable time of each phase: the roofline arithmetic on measured ceilings, with launches and links."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from capacity.arrays import ArrayLike, FloatArray
from capacity.demand.collectives import Collective
from capacity.demand.stage_phase import Phase
from capacity.errors import CapacityError
from capacity.estimate.case import Case
from capacity.estimate.law import ceiling_s, operator_times
from capacity.estimate.time import total, weighted, weights_of
from capacity.formulas.pipeline import filling_factor
from capacity.supply.ceilings import Ceilings
from capacity.supply.links import Link, message_s, to_experts_s
from capacity.units import Arithmetic


def attainable_by_phase(
    case: Case, phases: Sequence[Phase], arithmetic: frozenset[Arithmetic]
) -> tuple[list[FloatArray], tuple[str, ...]]:
    """The time of each phase on measured ceilings, and notes. Shape: of the batch. [s]

    There is no time where a link is unknown, or the part states no peak; ``arithmetic`` is that of the phases.

    Parameters
    ----------
    case : Case
        Model, part and deployment.
    phases : sequence of Phase
        In the order in which they run.
    arithmetic : frozenset of Arithmetic
        How operators are stored and computed.

    Returns
    -------
    tuple
        A time per phase, each in the shape of the batch, [s], and notes.
    """
    ceilings = case.measured_ceilings(arithmetic)
    if ceilings is None:
        return [], ()
    notes = dict.fromkeys(ceilings.notes)
    times: list[FloatArray] = []
    for phase in phases:
        links = comm_s(case, phase)
        if isinstance(links, CapacityError):
            return [], (str(links),)
        times.append(np.asarray(phase.passes * _pass_s(case, phase, ceilings, links)))
    exchanged = [phase for phase in phases if phase.collectives]
    if exchanged and not isinstance(case.link, CapacityError):
        notes |= dict.fromkeys(_link_notes(case.link))
    return times, tuple(notes)


def _link_notes(link: Link) -> Iterator[str]:
    yield f"links: fixed times {link.evidence} ({link.kind})"
    if link.network is not None:
        server = link.network.server
        yield f"beyond {link.domain_devices} devices the network of {server} is assumed ({link.network.kind})"


def _pass_s(case: Case, phase: Phase, ceilings: Ceilings, comm_s: FloatArray) -> FloatArray:
    """Time of one pass through all pipeline ranks. Shape: of the batch. [s]"""
    times, ranks = [], 0
    of_rank = comm_s if phase.on_one_rank else np.asarray(0.0)  # messages of a pipeline are added below
    for item in phase.by_rank:
        operators = operator_times(item.work, ceilings, routing_exponent=case.deploy.routing_exponent)
        times.append(ceiling_s(operators, ceilings, launches=item.work.launches, comm_s=of_rank))
        ranks += item.ranks
    if phase.on_one_rank:
        return times[0]
    device_s = weighted(times, weights_of(times, phase))
    if not phase.flows:
        return device_s + comm_s
    # Each rank exchanges messages for its own layers, and waits for its turn while the pipeline fills.
    return (device_s + comm_s / ranks) * filling_factor(phase.turns, ranks)


def attainable_s(
    case: Case, phases: Sequence[Phase], arithmetic: frozenset[Arithmetic]
) -> tuple[FloatArray | None, tuple[str, ...]]:
    """The sum of `attainable_by_phase`, or None where there is none, and its notes. Shape: of the batch. [s]

    Parameters
    ----------
    case : Case
        Model, part and deployment.
    phases : sequence of Phase
        In the order in which they run.
    arithmetic : frozenset of Arithmetic
        How operators are stored and computed.

    Returns
    -------
    tuple
        The time in the shape of the batch, [s], or None; and notes.
    """
    times, notes = attainable_by_phase(case, phases, arithmetic)
    return (total(times) if times else None), notes


def comm_s(case: Case, phase: Phase) -> FloatArray | CapacityError:
    """Time on links of one pass of a phase, or why it is not modelled. Shape: of the batch. [s]

    Parameters
    ----------
    case : Case
        Model, part and deployment.
    phase : Phase
        Work of its passes.

    Returns
    -------
    ndarray or CapacityError
        In the shape of the batch, [s], or the reason.
    """
    exchanged: FloatArray = np.asarray(0.0)
    if not phase.collectives:
        return exchanged
    link = case.link
    if isinstance(link, CapacityError):
        return link
    sampled: ArrayLike = np.multiply(phase.sequences, phase.head_tokens)
    for item in phase.collectives:
        message = np.multiply(item.token_bytes, sampled if item.last_token_only else phase.tokens)
        exchanged = exchanged + item.count * _exchange_s(link, item, message)
    return exchanged


def _exchange_s(link: Link, item: Collective, message_bytes: FloatArray) -> FloatArray:
    """Time of one collective whose message on one device is given. Shape: of the message. [s]"""
    if item.experts is None:
        return message_s(link, item.kind, devices=item.devices, message_bytes=message_bytes)
    experts = item.experts
    return to_experts_s(
        link,
        devices=item.devices,
        groups=experts.groups,
        group_devices=experts.group_devices,
        choices=experts.choices,
        token_bytes=message_bytes,
    )
