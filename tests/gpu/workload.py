"""A small transformer, trained for a few steps and then asked: the workload that an environment is cut to."""

from __future__ import annotations

import hashlib
import importlib
import json
import sys
from pathlib import Path
from typing import Any


def main() -> None:
    torch: Any = importlib.import_module("torch")
    torch.manual_seed(3)
    torch.use_deterministic_algorithms(mode=True, warn_only=True)
    functional = torch.nn.functional
    made: list[Any] = []
    for kind in (torch.float32, torch.bfloat16):
        table = torch.nn.Embedding(512, 256, device="cuda")
        layer = torch.nn.TransformerEncoderLayer(256, 8, 1024, dropout=0.0, batch_first=True, device="cuda")
        model = torch.nn.TransformerEncoder(layer, 4)
        head = torch.nn.Linear(256, 512, device="cuda")
        parts = [*table.parameters(), *model.parameters(), *head.parameters()]
        optimizer = torch.optim.AdamW(parts, lr=1e-3)
        words = torch.randint(0, 512, (8, 128), generator=torch.Generator().manual_seed(5)).cuda()
        for _ in range(5):
            with torch.autocast("cuda", dtype=kind, enabled=kind != torch.float32):
                found = head(model(table(words)))
                loss = functional.cross_entropy(found.float().flatten(0, 1), words.roll(-1, 1).flatten())
            optimizer.zero_grad()
            loss.backward()
            torch.nn.utils.clip_grad_norm_(parts, 1.0)
            optimizer.step()
            made.append(loss.detach())
        model.eval()
        with torch.no_grad(), torch.autocast("cuda", dtype=kind, enabled=kind != torch.float32):
            tokens = words[:, :16]
            for _ in range(12):
                logits = head(model(table(tokens)))[:, -1]
                best = torch.topk(functional.softmax(logits.float(), -1), 5).indices[:, :1]
                tokens = torch.cat([tokens, best], 1)
        made += [tokens, logits.float()]
    data = b"".join(each.contiguous().cpu().numpy().tobytes() for each in made)
    answer = {"hash": hashlib.sha256(data).hexdigest(), "losses": [float(each) for each in made if each.dim() == 0]}
    text = json.dumps(answer)
    if len(sys.argv) > 1:
        Path(sys.argv[1]).write_text(text)
    sys.stdout.write(text + "\n")


if __name__ == "__main__":
    main()
