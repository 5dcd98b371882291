"""How the command shows models: versions, states, durations."""

from collections.abc import Mapping, Sequence

from rich import box
from rich.table import Table

from pipeline.cases.serving import ServingPlan, name_of, reference_of
from pipeline.inference.card import Survey, newest_first
from pipeline.persistence.ledger.models import ModelReport
from schemas.model_card import ModelCard

DIGEST_SHOWN = 12


def models_table(found: Survey, plans: Mapping[str, ServingPlan], reports: Sequence[ModelReport]) -> Table:
    """Every version that a folder, a plan or a process knows, newest first in each model."""
    table = Table(box=box.SIMPLE_HEAD, collapse_padding=True, pad_edge=False)
    for heading in ("Model", "Version", "State", "Loaded by", "L(1)", "L(16)", "Digest"):
        table.add_column(heading, justify="right" if heading.startswith("L(") else "left", overflow="fold")
    workers = {report.worker for report in reports}
    known = {*found.cards, *(report.reference for report in reports), *(each for plan in plans.values() for each in plan.references)}
    for name in sorted({name_of(reference) for reference in known}):
        for version in newest_first(reference.partition(":")[2] for reference in known if name_of(reference) == name):
            reference = reference_of(name, version)
            about = [report for report in reports if report.reference == reference]
            loaded = [report for report in about if report.state == "loaded"]
            card = found.cards[reference][0] if reference in found.cards else None
            digest = card.weights_sha256 if card else next((each.digest for each in loaded if each.digest), "")
            table.add_row(
                name,
                version,
                state_text(plans.get(name), version, about, is_here=card is not None),
                f"{len(loaded)} of {len(workers)}" if loaded else "",
                _duration_text([each.one_s for each in loaded]),
                _duration_text([each.most_s for each in loaded]),
                digest[:DIGEST_SHOWN],
            )
    for folder, error in found.refused.items():
        table.add_row(folder, "", f"refused: {error}", "", "", "", "")
    return table


def state_text(plan: ServingPlan | None, version: str, about: Sequence[ModelReport], *, is_here: bool) -> str:
    """What a version does now, and why where it does not."""
    refusals = [f"refused: {report.reason} ({report.code})" for report in about if report.state == "refused"]
    says = [_role(plan, version), *dict.fromkeys(refusals)]
    if not any(says):
        states = {report.state for report in about}
        says = ["loading" if "loading" in states else "loaded" if states else "in the folder" if is_here else "its folder is gone"]
    return "; ".join(each for each in says if each)


def plan_text(plan: ServingPlan) -> str:
    """One sentence on who answers."""
    if plan.canary is not None:
        return f"{plan.name}: {plan.canary} answers {plan.share:.2%} of the cases, {plan.serving} the others."
    beside = f"; {plan.shadow} reads beside it and answers nobody" if plan.shadow is not None else ""
    return f"{plan.name}: {plan.serving} answers{beside}."


def measured_table(card: ModelCard, durations_s: Mapping[int, float]) -> Table:
    """What a check has found of a folder that passed."""
    table = Table(box=box.SIMPLE_HEAD, collapse_padding=True, pad_edge=False, title=f"{card.reference} passed", title_justify="left")
    table.add_column("Images in a batch", justify="right")
    table.add_column("Milliseconds", justify="right")
    for size, seconds in durations_s.items():
        table.add_row(str(size), f"{1000 * seconds:.1f}")
    table.caption = "Digests, shapes and values were in order. " + (
        "The golden set was reproduced." if card.golden else "The card names no golden set: nothing was compared."
    )
    return table


def _role(plan: ServingPlan | None, version: str) -> str:
    if plan is None:
        return ""
    roles = {plan.candidate: "is being loaded", plan.shadow: "shadow", plan.canary: f"canary {plan.share:.2%}", plan.serving: "serves"}
    return roles.get(version, "")


def _duration_text(seconds: Sequence[float | None]) -> str:
    known = [each for each in seconds if each is not None]
    return f"{1000 * max(known):.1f} ms" if known else ""
