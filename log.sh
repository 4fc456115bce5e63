cd /tmp/m8; rm -f /tmp/m8/steps.log
S=~/.cache/dflash/SmolLM2-135M-Instruct.Q4_1.gguf; D=models/smollm2-135m-instruct-dflash.Q4_0.gguf
DF_STEP_LOG=/tmp/m8/steps.log timeout 140 build/release/dflash bench -m $S -md $D --reps 2 --sets gsm8k-chat,chat --limit 4 --rounds 2 --widths 2,3 -n 128 --prefill 64
