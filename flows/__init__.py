"""The flows: a campaign, an improvement, private voting, audit, watch, votes between sites."""

import os

if "PREFECT__FLOW_RUN_ID" in os.environ:  # a worker started this process for one flow run
    os.umask(0o077)  # whatever a campaign writes, only its owner reads
