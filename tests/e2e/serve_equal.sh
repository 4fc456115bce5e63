#!/usr/bin/env bash
# Every request has the text of "dflash run": alone and in company, with and without prefix hits, drafting and a seed.
. "$(dirname "$0")/serve_run.bash"
