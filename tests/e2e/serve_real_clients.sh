#!/usr/bin/env bash
# Real clients (openai, litellm, langchain-openai, curl, lm-eval, sglang-router, aiperf, schemathesis) against the server.
# pip brings them, some minutes and 1.8 GB: only with DF_TEST_CLIENTS=1.
want=${DF_TEST_CLIENTS-}
. "$(dirname "$0")/lib.bash"
if [ "$want" != 1 ]; then
  skip 'DF_TEST_CLIENTS=1 installs the clients of tests/clients/requirements.txt and runs them'
  finish
  exit
fi
DFLASH=$dflash "$root/tests/clients/run"
exit
