#!/usr/bin/env bash
# Every endpoint gives the text of "dflash run", alone and in company, streamed and whole, with and without a draft.
. "$(dirname "$0")/serve_run.bash"
