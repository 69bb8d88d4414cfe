"""The stack around campaigns: servers, workers, deployments, diagnosis."""
