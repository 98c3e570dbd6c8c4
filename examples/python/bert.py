"""transformers' BERT, a small one with fresh weights, two tasks on one trunk: which words are hidden, and which of two
kinds a text is. Parameters and optimizer live in host memory.

python bert.py [steps]. On a GPU where there is one.
"""

import sys

import torch
from torch import nn, optim
from transformers import BertConfig, BertModel

import zeepo

WORDS, HIDDEN_WORD, LENGTH = 200, 0, 32
steps = int(sys.argv[1]) if len(sys.argv) > 1 else 20
device = "cuda" if torch.cuda.is_available() else "cpu"
torch.manual_seed(0)


class TwoTasks(nn.Module):
    def __init__(self):
        super().__init__()
        shape = BertConfig(vocab_size=WORDS, hidden_size=64, num_hidden_layers=3, num_attention_heads=4,
                           intermediate_size=128, max_position_embeddings=LENGTH)
        self.trunk = BertModel(shape, add_pooling_layer=False)
        self.words = nn.Linear(64, WORDS)
        self.kinds = nn.Linear(64, 2)

    def forward(self, tokens):
        features = self.trunk(input_ids=tokens).last_hidden_state
        return self.words(features), self.kinds(features[:, 0])


def texts(count=16):
    """Each is of low words or of high ones; every fourth word is hidden."""
    kinds = torch.randint(2, (count,))
    words = torch.randint(1, WORDS // 2, (count, LENGTH)) + kinds[:, None] * (WORDS // 2 - 1)
    shown = words.clone()
    shown[:, 1::4] = HIDDEN_WORD
    return shown.to(device), words.to(device), kinds.to(device)


model = TwoTasks().to(device)
optimizer = optim.AdamW(model.parameters(), lr=3e-3)
zeepo.init(model, optimizer, offload_param="host", offload_optimizer="host")
for step in range(steps):
    shown, words, kinds = texts()
    of_words, of_kinds = model(shown)
    hidden = nn.functional.cross_entropy(of_words[:, 1::4].flatten(0, 1), words[:, 1::4].flatten())
    kind = nn.functional.cross_entropy(of_kinds, kinds)
    (hidden + kind).backward()
    optimizer.step()
    optimizer.zero_grad()
    print(f"step {step + 1}, loss {(hidden + kind).item():.4f}")
zeepo.close()
