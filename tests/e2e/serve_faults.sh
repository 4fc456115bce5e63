#!/usr/bin/env bash
# Clients that leave by the thousand, vanish or only hold connections; too little KV memory; a killed server.
# DF_TEST_LONG=1: a hundred thousand of them, which takes an hour.
export SERVE_LONG=${DF_TEST_LONG-}
. "$(dirname "$0")/serve_run.bash"
