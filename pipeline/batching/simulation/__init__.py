"""The batching rule in virtual time: the policy code that a model thread calls, beside the rules of others. Pure and seeded."""
