"""The sheets of serving engines: the cache that one sets apart, whether it starts, its rules, a command line of it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from capacity.importers.launch import Launch
from capacity.presentation.figures import counted
from capacity.presentation.sheet import Cell, Column, Line, Listing, Section, Sheet
from capacity.presentation.sheets.hardware import source_lines
from capacity.presentation.sheets.pool import pool_rows
from capacity.presentation.sheets.sizing import ledger_section
from capacity.results import CachePool
from capacity.specs.engine import EngineSpec
from capacity.studies.start import Start


def start_sheet(result: Start) -> Sheet:
    """Whether an engine starts, its memory, and what would let it start."""
    return Sheet(
        title=f"{result.engine} {result.version} with {result.model} on {result.devices} x {result.part}",
        head=tuple(_start_lines(result)),
        sections=(
            *([_pool_section(result.pool)] if result.pool else []),
            ledger_section(result.ledger, _sequences_words(result), stages=1),
        ),
        assumptions=result.assumed,
        notes=result.notes,
        not_modelled=result.not_modelled,
    )


def _sequences_words(result: Start) -> str:
    return f"{counted(result.sequences, 'sequence')} of {result.context_tokens:,} tokens"


def _start_lines(result: Start) -> Iterator[Line]:
    if result.starts:
        yield Line(("starts: it holds ", _sequences_words(result)), "good")
        return
    yield Line(("does not start: it cannot hold ", _sequences_words(result)), "bad")
    if result.longest_context_tokens:
        yield Line(("a context of at most ", Cell(result.longest_context_tokens, "token"), " tokens starts"))
    if result.fraction is not None:
        yield Line(f"a memory fraction of {result.fraction:g} starts")
    if result.enough is not None:
        yield Line(("tensor parallelism over ", Cell(result.enough.devices, "device"), " devices starts"))
    if not (result.longest_context_tokens or result.fraction or result.enough):
        yield Line("no shorter context, larger fraction or number of devices that was tried starts")


def _pool_section(pool: CachePool) -> Section:
    columns = (Column("figure", "text"), Column("value"))
    rows = tuple(pool_rows(pool))
    return Section("Cache", columns, rows, evidence=Column("evidence", "id", 2), notes=Column("condition", "text", 1))


def engine_sheet(engine: EngineSpec) -> Sheet:
    """Policies, settings and constants of one engine, with their sources."""
    policies = [(name, _joined(value)) for name, value in engine.policies.model_dump().items() if value]
    settings = [(name, value) for name, value in engine.defaults.model_dump().items() if value is not None]
    head = f"{engine.name} {engine.version}".rstrip() + f": {engine.description}"
    return Sheet(
        title=head,
        head=(Line(head),),
        sections=(
            _named(
                "Policies",
                [(name, ", ".join(value) if isinstance(value, tuple) else value) for name, value in policies],
            ),
            _named("Settings where nothing is stated", [*settings, *_part_settings(engine)]),
            _named("Constants", list(_constants(engine))),
        ),
        listings=(Listing("Sources", source_lines(engine.sources)),),
        notes=(engine.version_note,) if engine.version_note else (),
    )


def _joined(value: str | tuple[str, ...]) -> str:
    return value if isinstance(value, str) else ", ".join(value)


def _part_settings(engine: EngineSpec) -> Iterator[tuple[str, str]]:
    for one in engine.part_defaults:
        aside = f", not {', '.join(one.except_parts)}" if one.except_parts else ""
        where = f"from {one.min_capacity_bytes / 2**30:g} GiB on{aside}"
        for name, value in one.model_dump(exclude={"min_capacity_bytes", "except_parts"}).items():
            if value is not None:
                yield f"{name}, {where}", str(value)


def _constants(engine: EngineSpec) -> Iterator[tuple[str, Cell]]:
    if engine.activation_terms is not None:
        terms = engine.activation_terms
        yield (
            "activations per allowed sequence and entry of the vocabulary",
            Cell(f"{terms.sequence_entry_bytes:g} B"),
        )
        yield "activations per batched token and hidden column", Cell(f"{terms.token_column_bytes:g} B")
    for one in engine.process:
        yield f"outside the allocator, tensor parallelism from {one.tensor_parallel} on", Cell(one.held_bytes, "B")
    if engine.graphs is not None:
        place = "set apart before the cache" if engine.graphs.inside else "outside the fraction"
        yield f"captured graphs, {place}", Cell(engine.graphs.held_bytes, "B")
    if engine.driver_bytes:
        yield "of the capacity that the driver's tool reports, not seen by a process", Cell(engine.driver_bytes, "B")
    for pool in engine.pools:
        share = f"{pool.parts} parts of {sum(one.parts for one in engine.pools)}"
        yield f"pool of {', '.join(pool.rows)}", Cell(f"{share}, rounded {'up' if pool.rounding == 'ceil' else 'down'}")


def _named(title: str, pairs: Sequence[tuple[str, object]]) -> Section:
    rows = tuple((Cell(name), value if isinstance(value, Cell) else Cell(str(value))) for name, value in pairs)
    return Section(title, (Column("name", "text"), Column("value", "text")), rows)


def engines_sheet(engines: Sequence[EngineSpec]) -> Sheet:
    """All engines whose allocation is known."""
    columns = (Column("engine", "id"), Column("newest known", "id"), Column("description", "text"))
    rows = tuple((Cell(one.name), Cell(one.version or "-"), Cell(one.description)) for one in engines)
    return Sheet("Engines", (Line(counted(len(engines), "engine")),), (Section("", columns, rows),))


def launch_sheet(launch: Launch) -> Sheet:
    """What a command line was read as, flag by flag."""
    rows = tuple((Cell(flag), Cell(meaning)) for flag, meaning in launch.read)
    columns = (Column("flag", "text"), Column("read as", "text"))
    others = {
        "Flags without effect on sizes and times": launch.without_effect,
        "Flags that are not modelled": launch.not_modelled,
        "Flags that are not known": launch.unknown,
    }
    return Sheet(
        title=f"{launch.engine} with {launch.model}",
        head=(Line(f"{launch.engine} with {launch.model}"),),
        sections=(Section("Flags that decide", columns, rows),) if rows else (),
        listings=tuple(Listing(title, flags) for title, flags in others.items() if flags),
    )
