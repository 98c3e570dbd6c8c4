"""A causal model of transformers' with its own Trainer, which knows nothing of zeepo; then it generates, streamed.

python trainer.py [steps]. A small model with fresh weights. On a GPU where there is one.
"""

import sys
import tempfile

import torch
from torch import optim
from transformers import LlamaConfig, LlamaForCausalLM, Trainer, TrainingArguments

import zeepo

steps = int(sys.argv[1]) if len(sys.argv) > 1 else 20
device = "cuda" if torch.cuda.is_available() else "cpu"
torch.manual_seed(0)


class Counting(torch.utils.data.Dataset):
    """Numbers that count up from anywhere, modulo 50."""

    def __len__(self):
        return 8 * steps

    def __getitem__(self, index):
        numbers = (torch.arange(24) + 7 * index) % 50
        return dict(input_ids=numbers, labels=numbers)


shape = LlamaConfig(vocab_size=50, hidden_size=64, intermediate_size=128, num_hidden_layers=3, num_attention_heads=4,
                    num_key_value_heads=2, max_position_embeddings=64, bos_token_id=None, eos_token_id=None)
model = LlamaForCausalLM(shape).to(device)
optimizer = optim.AdamW(model.parameters(), lr=3e-3)
zeepo.init(model, optimizer, offload_optimizer="host")
arguments = TrainingArguments(tempfile.mkdtemp(), per_device_train_batch_size=8, num_train_epochs=1, logging_steps=1,
                              save_strategy="no", report_to=[], disable_tqdm=True, use_cpu=device == "cpu")
trainer = Trainer(model, arguments, train_dataset=Counting(), optimizers=(optimizer, None))
trainer.train()
for entry in trainer.state.log_history:
    if "loss" in entry:
        print(f"step {entry['step']}, loss {float(entry['loss']):.4f}")
zeepo.close()

model.eval()
zeepo.init(model, offload_param="host")
with torch.no_grad():
    counted = model.generate(torch.tensor([[3, 4, 5, 6]], device=device), max_new_tokens=6, do_sample=False)
print("counts", counted[0].tolist())
zeepo.close()
