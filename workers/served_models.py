"""The lines that an inference process stands at: one for each version that its registry serves, as versions come and go."""

from collections.abc import Callable, Iterator, Sequence
from typing import Generic, Protocol, TypeVar

from pipeline.cases.states import CaseState
from pipeline.inference.registry import ModelRegistry
from pipeline.observability.log import logger
from pipeline.persistence.ledger.claims import Claimed, Return, give_back
from pipeline.persistence.waiting_line import Waiting
from workers.wiring import Services

PREPARED_ANEW = "prepared-for-another-model"


class Served(Protocol):
    """One version as the model thread serves it."""

    @property
    def reference(self) -> str:
        """`name:version`."""
        ...


Model = TypeVar("Model", bound=Served)


class ServedModels(Generic[Model]):
    """The served versions; what was learnt of one is kept while it is served.

    The model thread follows the registry between two batches; other threads read what it left.

    Parameters
    ----------
    registry
        Whose versions are served.
    serve
        Makes what a new version is served with; KeyError where its card is not on the shelf yet.
    """

    def __init__(self, registry: ModelRegistry, serve: Callable[[str], Model]) -> None:
        self._registry, self._serve = registry, serve
        self._models: tuple[Model, ...] = ()
        self.follow()

    def follow(self) -> None:
        """Take up versions that the registry serves now, and leave the lines of those that it does not."""
        served = self._registry.served
        if served != tuple(model.reference for model in self._models):
            known = {model.reference: model for model in self._models}
            self._models = tuple(model for reference in served if (model := known.get(reference) or self._new(reference)))

    def _new(self, reference: str) -> Model | None:
        try:
            return self._serve(reference)
        except KeyError:
            # The shelf of cards looks into its folder once a second: the next turn tries again.
            return None

    def __iter__(self) -> Iterator[Model]:
        return iter(self._models)


def own_cases(services: Services, reference: str, places: Sequence[Waiting], cases: Sequence[Claimed]) -> list[Claimed]:
    """Those of the claimed cases that were prepared for this version; the others go to the lines that they belong in, free of charge.

    A case that was put off while it stood in a version's line, and is prepared anew for another, still has its old place.

    Raises
    ------
    Unavailable
        The ledger or a line is away. Their leases lapse, or the sweeper puts them in line.
    """
    strangers = [case for case in cases if case.work.prepared and case.work.prepared.model != reference]
    if strangers:
        logger().warning("stood_in_an_old_line", model=reference, case_count=len(strangers))
        why = Return(CaseState.INFERRING, CaseState.AWAITING_INFERENCE, PREPARED_ANEW, is_free=True)
        returned = give_back(services.ledger, [(case.case_id, case.attempt) for case in strangers], why, worker=services.worker)
        ids, by_id = {rung.case_id for rung in returned}, {place.case_id: place for place in places}
        for case in strangers:
            if case.case_id in ids and case.work.prepared:
                services.line(case.work.prepared.model).join([by_id[case.case_id]])
    return [case for case in cases if case not in strangers]
