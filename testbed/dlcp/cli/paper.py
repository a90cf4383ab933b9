"""`dlcp paper`: every shipped experiment at its reduced size, and the page that tells what came of it."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from cyclopts import Parameter

from dlcp.cli.bench import Json
from dlcp.errors import ExitCode, MachineCannot, Problems, needs_extra
from dlcp.paths import ANALYSIS

if TYPE_CHECKING:
    from dlcp.runner.paper import Part


def paper(
    *names: str,
    plan: Annotated[bool, Parameter(negative="", help="Show the runs and the time they take; start nothing.")] = False,
    page: Annotated[
        bool, Parameter(negative="", help="Write the page of the runs that there are; run nothing.")
    ] = False,
    results: Annotated[Path, Parameter(help="Folder that results are in.")] = Path("results"),
    out: Annotated[
        Path | None, Parameter(help="Folder that the page goes to. Default: analysis; of --quick results/quick.")
    ] = None,
    quick: Annotated[
        bool, Parameter(negative="", help="In under an hour: the few experiments, jobs and schemes that say so.")
    ] = False,
    json: Json = False,
) -> int:
    """Run the whole comparison, each experiment reduced as its file says, and write RESULTS.md. Again = resume.

    Parameters
    ----------
    names
        Some of the experiments, by name or file; default: all that ship and say how they are reduced (`reduced:`, or
        `quick:` with --quick).
    """
    from dlcp.cli.show import common
    from dlcp.runner import paper as whole

    paper_parts = whole.parts(results, names, quick=quick)
    rows = [_row(part) for part in paper_parts]
    if plan:
        common.print_json(rows) if json else _print_plan(paper_parts)
        return ExitCode.FINE
    code = ExitCode.FINE
    if not page:
        _print_plan(paper_parts)
        code = _make(paper_parts, results)
    print(f"\npage: {_write(paper_parts, results, out or (results / 'quick' if quick else ANALYSIS))}")
    return code


def _make(parts: list[Part], results: Path) -> ExitCode:
    """Search and run what is missing, one experiment after the other; a failed one does not stop the next. A part whose
    search was made is replaced in `parts`: other knobs make other runs."""
    from dlcp.cli.show import common
    from dlcp.cli.show.progress import progress_on
    from dlcp.runner import paper as whole

    codes = [ExitCode.FINE]
    for number, planned in enumerate(parts, 1):
        part = planned
        if not part.todo and not part.to_tune:
            continue
        common.console().print(f"\n{number}/{len(parts)} {part.name}", style="bold")
        try:
            if part.to_tune:
                common.console().print("searching the knobs that it leaves to the machine")
                with progress_on(common.console()) as listener:
                    part = whole.tuned(part, results, listener)
            parts[number - 1] = part
            with progress_on(common.console()) as listener:
                execution = whole.make(part, results, listener)
        except Problems as found:
            if any(isinstance(problem, MachineCannot) for problem in found.problems):
                raise
            common.print_problems(found.problems)
            codes.append(ExitCode.SUSPECT)
            continue
        if execution is not None:
            common.print_execution(execution)
            codes.append(execution.exit_code)
    failed = [code for code in codes if code is ExitCode.RUN_FAILED]
    return failed[0] if failed else max(codes)


def _write(parts: list[Part], results: Path, out: Path) -> Path:
    from dlcp.runner.paper import reduction

    with needs_extra("report", "dlcp paper"):
        from dlcp.report.output.results_md import Chapter, write
    chapters = [
        Chapter(
            name=part.name,
            description=part.whole.experiment.description,
            folder=results / part.name,
            run_ids=frozenset(cell.run.id for cell in part.cells),
            expect=part.whole.experiment.expect,
            reduction=reduction(part.whole.experiment),
            unsupported=tuple((refusal.label, refusal.why) for refusal in part.unsupported),
            cannot=part.cannot,
        )
        for part in parts
    ]
    return write(chapters, out)


def _row(part: Part) -> dict[str, object]:
    from dlcp.runner.paper import reduction

    return {
        "experiment": part.name,
        "runs": len(part.cells),
        "to_make": len(part.todo),
        "to_tune": len(part.to_tune),
        "minutes": round(part.seconds / 60, 1),
        "reduced": reduction(part.whole.experiment),
        "cannot": part.cannot,
    }


def _print_plan(parts: list[Part]) -> None:
    from dlcp.cli.show import common

    common.print_rows([_row(part) for part in parts])
    minutes = sum(part.seconds for part in parts) / 60
    todo, runs = sum(len(part.todo) for part in parts), sum(len(part.cells) for part in parts)
    common.console().print(f"\n{todo} of {runs} runs to make, about {minutes:.0f} min")
