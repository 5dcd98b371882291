"""A report in words and rows: outcome, sizes, scores."""

from rich import box
from rich.table import Table
from rich.text import Text

from schemas.api import CaseView
from schemas.report import Finding, ImageReading, Report

OUTCOME_STYLES = {
    "findings": "bold yellow",
    "nothing_found": "green",
    "not_applicable": "cyan",
    "not_assessable": "magenta",
    "not_yet_read": "bold cyan",
    "failed": "red",
    "refused": "red",
}


def report_of(case: CaseView) -> Report | None:
    """The report that came with a case, if one did."""
    # A newer door may say more than this client knows.
    return Report.model_validate(case.result, extra="ignore") if case.result else None


def outcome_of(case: CaseView) -> str:
    """The outcome where there is one, else where the case stands."""
    report = report_of(case)
    return report.outcome if report else case.status


def sentence_of(case: CaseView) -> str:
    """What is to be said of a case in one sentence."""
    if case.failure:
        return f"{case.failure.title}."
    report = report_of(case)
    if report is None:
        return "No answer yet."
    return f"Preliminary: {report.summary}" if report.kind == "preliminary" else report.summary


def outcome_text(outcome: str) -> Text:
    """The outcome's words in its colour."""
    return Text(outcome.replace("_", " "), style=OUTCOME_STYLES.get(outcome, ""))


def largest_finding(report: Report) -> tuple[ImageReading, Finding] | None:
    """The largest finding and its image; one in pixels comes after all in millimetres."""
    pairs = [(image, finding) for image in report.images for finding in image.findings]
    return max(pairs, key=lambda pair: _rank(pair[1]), default=None)


def size_text(finding: Finding) -> str:
    """Long and short axis, such as `23.1 x 13.8 mm`."""
    measured = {each.name: each for each in finding.measurements}
    long_axis, short_axis = measured["long_axis"], measured["short_axis"]
    return f"{long_axis.value:.1f} x {short_axis.value:.1f} {long_axis.unit}"


def scores_text(image: ImageReading) -> str:
    """The model's scores of an image, one a line."""
    return "\n".join(f"{name} {score:.3f}" for name, score in image.scores.items())


def reading_cells(report: Report | None) -> tuple[str, str, str]:
    """Size, probability and scores of the finding that counts most; of the first image where there is none."""
    if report is None:
        return "", "", ""
    found = largest_finding(report)
    if found is None:
        return "", "", scores_text(report.images[0]) if report.images else ""
    image, finding = found
    return size_text(finding), f"{finding.probability:.2f}", scores_text(image)


def findings_table(report: Report) -> Table:
    """Every finding of a report."""
    table = Table(box=box.SIMPLE_HEAD, collapse_padding=True, pad_edge=False, title="Findings", title_justify="left")
    for name in ("No.", "What", "Where", "Image", "Size", "Probability", "Suspicious"):
        table.add_column(name)
    for number, image in enumerate(report.images, start=1):
        for finding in image.findings:
            where = " ".join(filter(None, (finding.site.meaning, finding.laterality)))
            row_px, column_px = finding.centroid_px
            table.add_row(
                str(finding.number),
                finding.concept.meaning,
                f"{where}, row {row_px:.0f}, column {column_px:.0f}",
                f"{number}, frame {image.frame}",
                size_text(finding),
                f"{finding.probability:.2f}",
                "yes" if finding.is_suspicious else "no",
            )
    return table


def images_table(report: Report) -> Table:
    """Every image of a report, read or not."""
    table = Table(box=box.SIMPLE_HEAD, collapse_padding=True, pad_edge=False, title="Images", title_justify="left")
    for name in ("No.", "Answer", "Why not", "Scores", "Spacing", "Odd, but readable"):
        table.add_column(name)
    for number, image in enumerate(report.images, start=1):
        spacing = " x ".join(f"{side_mm:g}" for side_mm in image.spacing_mm) + " mm" if image.spacing_mm else "unknown"
        reason, warnings = image.reason or "", ", ".join(image.warnings)
        table.add_row(str(number), outcome_text(image.status), reason, scores_text(image), spacing, warnings)
    return table


def _rank(finding: Finding) -> tuple[bool, float]:
    area = next(each for each in finding.measurements if each.name == "area")
    return area.unit == "mm2", area.value
