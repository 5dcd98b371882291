"""Every metric, declared once: name, kind, meaning and labels. Labels never name a case, a person or a UID."""

from prometheus_client import Counter, Gauge, Histogram

SECONDS = (0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2, 3, 5, 7.5, 10, 12.5, 15, 20, 25, 30, 35, 45, 60, 120)

CASES_ADMITTED = Counter("secondread_cases_admitted_total", "Cases answered with 202.", ["lane"])
CASES_REJECTED = Counter("secondread_cases_rejected_total", "Submissions refused at the door.", ["lane", "reason"])
CASE_SECONDS = Histogram("secondread_case_duration_seconds", "From acceptance to the answer.", ["lane", "outcome"], buckets=SECONDS)
CASES_LATE = Counter("secondread_case_deadline_missed_total", "Cases answered after their deadline.", ["lane"])

STAGE_WAIT_SECONDS = Histogram("secondread_stage_wait_seconds", "From the hand-off to the claim.", ["stage", "lane"], buckets=SECONDS)
STAGE_SECONDS = Histogram("secondread_stage_duration_seconds", "Service time of a stage.", ["stage", "lane", "outcome"], buckets=SECONDS)
ATTEMPTS = Counter("secondread_attempts_total", "Claims, by what came of them.", ["stage", "outcome"])
NEWER_MESSAGES = Counter("secondread_messages_newer_total", "Doorbells of a later version than this code's: an upgrade is under way.")
MESSAGES_REFUSED = Counter("secondread_messages_refused_total", "Messages that are no doorbell that this code can read.")
EXPIRED_AT_STAGE = Counter("secondread_expired_at_stage_total", "Claims that were not begun: too little time was left.", ["stage"])
DUPLICATES = Counter("secondread_messages_dropped_total", "Doorbells that found nothing to claim.", ["stage"])
STALE_COMPLETIONS = Counter("secondread_stale_completions_total", "Completions refused because the claim had passed on.", ["stage"])
IDENTITY_MISMATCHES = Counter("secondread_identity_mismatch_total", "Stored data that was not the case's: withheld.", ["hop"])

QUEUE_DEPTH = Gauge("secondread_queue_depth", "Open cases by state.", ["state"], multiprocess_mode="mostrecent")
QUEUE_OLDEST_SECONDS = Gauge(
    "secondread_queue_oldest_age_seconds", "Age of the case that has been longest in a state.", ["state"], multiprocess_mode="mostrecent"
)

BATCH_IMAGES = Histogram("secondread_batch_size", "Images in a batch.", ["model"], buckets=(1, 2, 4, 6, 8, 12, 16, 24, 32))
BATCH_FILL = Histogram(
    "secondread_batch_fill_ratio",
    "Images in a batch, of those that it could have had.",
    ["model"],
    buckets=(0.1, 0.25, 0.5, 0.75, 0.9, 1, 2),
)
BATCH_HOLD_SECONDS = Histogram("secondread_batch_window_wait_seconds", "How long an idle device was held back.", ["model"], buckets=SECONDS)
BATCHES_FIRED = Counter("secondread_batches_total", "Batches by the reason that fired them.", ["model", "reason"])
BATCH_RIDERS = Counter("secondread_batch_riders_total", "Put-off cases that went along in spare slots.", ["model"])
LINE_WAIT_SECONDS = Histogram(
    "secondread_line_wait_seconds", "From joining the waiting line to the firing, by line and lane.", ["line", "lane"], buckets=SECONDS
)
DIVERTED = Counter(
    "secondread_line_diverted_total", "Cases taken out of a waiting line because no batch could answer them in time.", ["line", "lane"]
)
PREDICTION_RATIO = Histogram(
    "secondread_batch_duration_ratio",
    "What a batch took, by what was predicted.",
    ["model", "device"],
    buckets=(0.25, 0.5, 0.75, 0.9, 1, 1.1, 1.25, 1.5, 2, 3, 5),
)
OUT_OF_MEMORY = Counter("secondread_gpu_out_of_memory_total", "Forward passes that the device's memory did not hold.", ["model", "device"])
MEMORY_CAP = Gauge(
    "secondread_batch_memory_cap_images",
    "Most images that the device's memory was found to hold at once.",
    ["model", "device"],
    multiprocess_mode="mostrecent",
)
FORWARD_SECONDS = Histogram("secondread_gpu_forward_seconds", "Forward passes.", ["device"], buckets=SECONDS)

MODEL_LOADED = Gauge(
    "secondread_model_loaded", "1 when a process has loaded a version, 0 when one has let it go.", ["model"], multiprocess_mode="mostrecent"
)
MODELS_REFUSED = Counter("secondread_model_refused_total", "Model folders that did not pass their checks, by the reason's code.", ["code"])
SHADOW_COMPARED = Counter(
    "secondread_shadow_compared_total", "Cases that a shadow version read too, by whether it decides alike.", ["model", "agreement"]
)
SHADOW_SKIPPED = Counter("secondread_shadow_skipped_total", "Cases that a shadow had no idle capacity for.", ["model"])
SHADOW_DICE = Histogram(
    "secondread_shadow_dice",
    "Overlap of the shadow's outline with the answer's; 1 where both are empty.",
    ["model"],
    buckets=(0.1, 0.3, 0.5, 0.7, 0.8, 0.9, 0.95, 0.99, 1),
)
SHADOW_SCORE_GAP = Histogram(
    "secondread_shadow_score_gap",
    "Largest difference between a score of the shadow and the answer's.",
    ["model"],
    buckets=(0.001, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1),
)

MESSAGES_REPUBLISHED = Counter("secondread_messages_republished_total", "Doorbells rung again by the sweeper.", ["pool", "cause"])
RING_BUDGET_SPENT = Counter(
    "secondread_ring_budget_spent_total", "Rounds in which the sweeper rang all that its budget allows; the rest waits for the next."
)
RETRY_TOKENS = Gauge("secondread_retry_budget_tokens", "Retries that a pool may still have.", ["pool"], multiprocess_mode="mostrecent")
RETRIES_SUPPRESSED = Counter("secondread_retries_suppressed_total", "Retries that were put off instead.", ["pool", "cause"])
CATATONIC_WORKERS = Counter("secondread_worker_catatonic_total", "Worker processes ended because they received nothing.", ["pool"])
LEASES_EXPIRED = Counter("secondread_leases_expired_total", "Claims whose worker gave no sign of life.", ["pool"])
QUARANTINED = Counter("secondread_poison_quarantined_total", "Cases set aside because their work crashed again and again.", ["pool"])
TENSORS_RECLAIMED = Counter("secondread_arena_slot_leaks_total", "Tensors that nobody freed before they expired.")
TENSOR_BYTES = Gauge("secondread_tensor_store_bytes", "Bytes in the tensor store.", multiprocess_mode="mostrecent")
SWEEPER_LAST_SUCCESS = Gauge(
    "secondread_reconciler_last_success_timestamp_seconds", "When the sweeper last finished a round.", multiprocess_mode="mostrecent"
)
LEADER_SINCE = Gauge(
    "secondread_leader_since_timestamp_seconds", "When the leader of a role took over.", ["role"], multiprocess_mode="mostrecent"
)

PRELIMINARY_ANSWERS = Counter("secondread_preliminary_answers_total", "Answers by the clock, before the reading.", ["lane", "reason"])
CASES_PUT_OFF = Counter("secondread_cases_deferred_total", "Cases that went to the compensation queue.", ["lane", "reason"])
WORKLISTED = Counter("secondread_compensation_exhausted_total", "Cases that went to the human worklist after their last try.")
GUARD_LAST_SUCCESS = Gauge(
    "secondread_guard_last_success_timestamp_seconds", "When the guard last finished a round.", multiprocess_mode="mostrecent"
)

CALLBACK_ATTEMPTS = Counter("secondread_webhook_attempts_total", "Callback attempts by outcome class.", ["outcome"])
