"""A small decoder with trained weights, so that quantization has something to lose: a two-layer Llama, trained for some
seconds on the text in the package."""

from __future__ import annotations

from pathlib import Path

from benchmarking.workloads.support.quality_inputs import checked_text

VOCABULARY, LENGTH, ROWS, STEPS, SEED = 512, 64, 8, 40, 1


def train(folder: Path) -> Path:
    """Write the model with its tokenizer to a folder, as from the hub."""
    import torch
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
    from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast

    text = checked_text(None)
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(vocab_size=VOCABULARY, initial_alphabet=alphabet, special_tokens=["<s>", "</s>"])
    tokenizer.train_from_iterator(text.splitlines(keepends=True), trainer)
    fast = PreTrainedTokenizerFast(tokenizer_object=tokenizer, bos_token="<s>", eos_token="</s>")
    with torch.random.fork_rng():
        torch.manual_seed(SEED)
        config = LlamaConfig(
            vocab_size=VOCABULARY,
            hidden_size=64,
            intermediate_size=160,
            num_hidden_layers=2,
            num_attention_heads=4,
            num_key_value_heads=2,
            max_position_embeddings=512,
            bos_token_id=0,
            eos_token_id=1,
        )
        model = LlamaForCausalLM(config)
        ids = torch.tensor(fast(text, add_special_tokens=False)["input_ids"])
        optimizer = torch.optim.AdamW(model.parameters(), lr=5e-3)
        for _ in range(STEPS):
            starts = torch.randint(0, len(ids) - LENGTH, (ROWS,))
            batch = torch.stack([ids[start : start + LENGTH] for start in starts])
            loss = model(input_ids=batch, labels=batch).loss
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
    model.eval().save_pretrained(folder)
    fast.save_pretrained(folder)
    return folder
