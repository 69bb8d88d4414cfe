"""Use cases: what a run does, step by step, without any orchestrator."""
