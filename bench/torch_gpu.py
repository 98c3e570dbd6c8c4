"""PyTorch and transformers on the GPU, for bench/gpu_train.py to compare with.

usage: torch_gpu.py speed CONFIG.json BATCH TIME ACCUMULATION STEPS
       torch_gpu.py losses MODEL_DIRECTORY TIME BATCH STEPS LEARNING_RATE
`speed` trains a model of that shape: fp32 weights, bf16 autocast, torch.compile of each block, fused AdamW. `losses`
trains a model from its directory in fp32 and in bf16, in order of its tokens.bin, as zeepo train --no-shuffle does. Each
prints one JSON line.
"""
import json
import sys
import time

import torch
from transformers import AutoConfig, AutoModelForCausalLM

CLIP = 1.0


def speed(config, batch, length, accumulation, steps):
    torch.manual_seed(0)
    shape = AutoConfig.for_model(**json.load(open(config)), use_cache=False)
    with torch.device("cuda"):
        model = AutoModelForCausalLM.from_config(shape, attn_implementation="sdpa", dtype=torch.float32)
    for block in model.model.layers:
        block.compile()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-5, fused=True)
    ids = torch.randint(0, shape.vocab_size, (batch, length), device="cuda")
    seconds = []
    for _ in range(steps):
        torch.cuda.synchronize()
        start = time.perf_counter()
        for _ in range(accumulation):
            with torch.autocast("cuda", torch.bfloat16):
                loss = model(input_ids=ids, labels=ids).loss / accumulation
            loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), CLIP)
        optimizer.step()
        optimizer.zero_grad()
        torch.cuda.synchronize()
        seconds.append(time.perf_counter() - start)
    median = sorted(seconds[1:])[len(seconds[1:]) // 2]
    return {
        "torch": torch.__version__,
        "tokens_per_second": batch * length * accumulation / median,
        "device_gib": torch.cuda.max_memory_allocated() / 2**30,
    }


def losses(directory, length, batch, steps, rate, dtype):
    model = AutoModelForCausalLM.from_pretrained(directory, dtype=torch.float32).cuda().eval()  # no dropout
    optimizer = torch.optim.AdamW(model.parameters(), lr=rate, betas=(0.9, 0.95), eps=1e-8, weight_decay=0.1)
    tokens = torch.frombuffer(bytearray(open(f"{directory}/tokens.bin", "rb").read()), dtype=torch.uint16).long().cuda()
    samples = (len(tokens) - 1) // length
    found = []
    for step in range(steps):
        rows = [tokens[k * length : (k + 1) * length + 1] for k in ((step * batch + i) % samples for i in range(batch))]
        rows = torch.stack(rows)
        with torch.autocast("cuda", torch.bfloat16, enabled=dtype == "bf16"):
            logits = model(input_ids=rows[:, :-1]).logits
        loss = torch.nn.functional.cross_entropy(logits.float().flatten(0, 1), rows[:, 1:].flatten())
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), CLIP)
        optimizer.step()
        optimizer.zero_grad()
        found.append(loss.item())
    return found


def main():
    torch.backends.cuda.matmul.allow_tf32 = False
    what, path, *numbers = sys.argv[1:]
    if what == "speed":
        result = speed(path, *map(int, numbers))
    else:
        *sizes, rate = numbers
        result = {dtype: losses(path, *map(int, sizes), float(rate), dtype) for dtype in ("fp32", "bf16")}
    print(json.dumps(result))


if __name__ == "__main__":
    main()
