"""Configurations as people write them for LlamaFactory and Axolotl, each with the recipe that it becomes."""

from __future__ import annotations

from typing import NamedTuple


class Case(NamedTuple):
    """A source and its recipe, both YAML, and what the report says of some keys: a status, or part of a note."""

    source: str
    recipe: str
    said: dict[str, str]


LLAMAFACTORY: dict[str, Case] = {}
LLAMAFACTORY["pretrain"] = Case(
    """
model_name_or_path: meta-llama/Meta-Llama-3-8B
stage: pt
do_train: true
finetuning_type: lora
lora_target: all
dataset: c4_demo
cutoff_len: 4096
max_samples: 1000
overwrite_cache: true
preprocessing_num_workers: 16
output_dir: saves/llama3-8b/lora/pretrain
logging_steps: 10
save_steps: 500
plot_loss: true
per_device_train_batch_size: 1
gradient_accumulation_steps: 8
learning_rate: 1.0e-4
num_train_epochs: 3.0
lr_scheduler_type: cosine
warmup_ratio: 0.1
bf16: true
ddp_timeout: 180000000
""",
    """
model:
  path: meta-llama/Meta-Llama-3-8B
data:
  train: [{catalog: data/dataset_info.json, name: c4_demo}]
  limit: 1000
  sequence_length: 4096
  packing: true
stage: {name: pretrain}
adapter: {name: lora, targets: all-linear, rank: 8}
optimizer: {name: adamw, learning_rate: 0.0001}
schedule: {name: cosine, warmup_fraction: 0.1}
training:
  epochs: 3.0
  global_batch: 8
  micro_batch: 1
  precision: bf16
  gradient_checkpointing: true
  seed: 42
  log_every: 10
  checkpoint_every: 500
storage:
  run: llama3-8b-lora-pretrain
""",
    {
        "packing": "on in pretraining",
        "do_train": "default",
        "plot_loss": "default",
        "overwrite_cache": "fingerprint",
        "lora_rank": "implied",
    },
)
LLAMAFACTORY["sft_lora"] = Case(
    """
model_name_or_path: Qwen/Qwen2.5-7B-Instruct
trust_remote_code: true
flash_attn: fa2
stage: sft
do_train: true
finetuning_type: lora
lora_rank: 16
lora_alpha: 32
lora_dropout: 0.05
lora_target: q_proj,v_proj
use_rslora: true
dataset: identity,alpaca_en_demo
dataset_dir: /corpora/field
template: qwen
cutoff_len: 2048
neat_packing: true
val_size: 0.1
output_dir: saves/qwen/sft
logging_steps: 5
save_steps: 200
save_total_limit: 3
eval_strategy: steps
eval_steps: 100
report_to: tensorboard
per_device_train_batch_size: 2
gradient_accumulation_steps: 4
ray_num_workers: 4
learning_rate: 2e-4
weight_decay: 0.01
adam_beta2: 0.95
max_grad_norm: 0.5
max_steps: 600
lr_scheduler_type: cosine_with_min_lr
lr_scheduler_kwargs:
  min_lr: 2.0e-5
warmup_steps: 20
bf16: true
seed: 7
resume_from_checkpoint: null
""",
    """
model:
  path: Qwen/Qwen2.5-7B-Instruct
  attention: flash_attention_2
  trust_remote_code: true
data:
  train: [{catalog: /corpora/field/dataset_info.json, name: [identity, alpaca_en_demo]}]
  hold_out: 0.1
  sequence_length: 2048
  truncation: keep_start
  packing: true
stage: {name: sft}
adapter: {name: lora, rank: 16, alpha: 32, dropout: 0.05, targets: [q_proj, v_proj], use_rslora: true}
optimizer: {name: adamw, learning_rate: 0.0002, weight_decay: 0.01, betas: [0.9, 0.95]}
schedule: {name: cosine, floor: 0.1, warmup_steps: 20}
training:
  workers: 4
  steps: 600
  global_batch: 32
  micro_batch: 2
  precision: bf16
  gradient_checkpointing: true
  max_grad_norm: 0.5
  seed: 7
  log_every: 5
  evaluate_every: 100
  checkpoint_every: 200
  keep_checkpoints: 3
  trackers: [jsonl, tensorboard]
storage:
  run: qwen-sft
""",
    {
        "template": "the model's own chat template",
        "val_size": "taken",
        "gradient_accumulation_steps": "2 × 4 × 4 workers",
        "resume_from_checkpoint": "default",
        "lr_scheduler_kwargs.min_lr": "taken",
        "eval_strategy": "default",
    },
)
LLAMAFACTORY["sft_full_zero3"] = Case(
    """
model_name_or_path: Qwen/Qwen2.5-1.5B
stage: sft
finetuning_type: full
dataset: alpaca_en
dataset_dir: ONLINE
template: qwen
mask_history: true
deepspeed: ds/z3_offload.json
disable_gradient_checkpointing: true
output_dir: saves/full
run_name: full three
report_to: [wandb, swanlab]
per_device_train_batch_size: 1
gradient_accumulation_steps: 2
learning_rate: 1.0e-5
num_train_epochs: 1.0
lr_scheduler_type: constant
pure_bf16: true
lora_rank: 8
""",
    """
model:
  path: Qwen/Qwen2.5-1.5B
data:
  train: ['hf://datasets/alpaca_en']
  sequence_length: 2048
  truncation: keep_start
  packing: false
  train_on: last
stage: {name: sft}
adapter: {name: full}
optimizer: {name: adamw, learning_rate: 1.0e-05}
schedule: {name: constant, warmup_steps: 0}
training:
  epochs: 1.0
  global_batch: 2
  micro_batch: 1
  precision: bf16
  zero_stage: 3
  offload_optimizer: true
  gradient_checkpointing: false
  seed: 42
  trackers: [jsonl, wandb]
storage:
  run: full-three
""",
    {
        "deepspeed": "parameters are not offloaded here",
        "report_to": "there is no tracker swanlab",
        "lora_rank": "has no effect with adapter full",
        "output_dir": "by their names",
        "lr_scheduler_type": "taken",
    },
)
LLAMAFACTORY["reward"] = Case(
    """
model_name_or_path: meta-llama/Meta-Llama-3-8B-Instruct
stage: rm
finetuning_type: lora
lora_rank: 8
dataset: dpo_en_demo
dataset_dir: data
template: llama3
cutoff_len: 2048
output_dir: saves/llama3-8b/lora/reward
per_device_train_batch_size: 1
gradient_accumulation_steps: 8
learning_rate: 1.0e-4
num_train_epochs: 3.0
fp16: true
load_best_model_at_end: false
""",
    """
model:
  path: meta-llama/Meta-Llama-3-8B-Instruct
data:
  train: [{catalog: data/dataset_info.json, name: dpo_en_demo}]
  sequence_length: 2048
  truncation: keep_start
  packing: false
stage: {name: reward}
adapter: {name: lora, rank: 8, targets: all-linear}
optimizer: {name: adamw, learning_rate: 0.0001}
schedule: {name: linear, warmup_steps: 0}
training:
  epochs: 3.0
  global_batch: 8
  micro_batch: 1
  precision: bf16
  gradient_checkpointing: true
  seed: 42
storage:
  run: llama3-8b-lora-reward
""",
    {"stage": "this version has no stage 'reward'", "fp16": "no loss scaling", "load_best_model_at_end": "default"},
)
LLAMAFACTORY["dpo"] = Case(
    """
model_name_or_path: meta-llama/Meta-Llama-3-8B-Instruct
adapter_name_or_path: saves/llama3-8b/lora/sft
stage: dpo
finetuning_type: lora
use_dora: true
pref_beta: 0.2
pref_loss: hinge
pref_ftx: 0.5
dataset: dpo_en_demo
template: llama3
output_dir: saves/llama3-8b/lora/dpo
per_device_train_batch_size: 1
gradient_accumulation_steps: 8
learning_rate: 5.0e-6
num_train_epochs: 3.0
lr_scheduler_type: cosine
warmup_ratio: 0.1
bf16: true
simpo_gamma: 0.5
""",
    """
model:
  path: meta-llama/Meta-Llama-3-8B-Instruct
  adapter: saves/llama3-8b/lora/sft
data:
  train: [{catalog: data/dataset_info.json, name: dpo_en_demo}]
  sequence_length: 2048
  truncation: keep_start
  packing: false
stage: {name: dpo, beta: 0.2, loss: hinge, sft_weight: 0.5}
adapter: {name: lora, use_dora: true, rank: 8, targets: all-linear}
optimizer: {name: adamw, learning_rate: 5.0e-06}
schedule: {name: cosine, warmup_fraction: 0.1}
training:
  epochs: 3.0
  global_batch: 8
  micro_batch: 1
  precision: bf16
  gradient_checkpointing: true
  seed: 42
storage:
  run: llama3-8b-lora-dpo
""",
    {
        "adapter_name_or_path": "taken",
        "use_dora": "taken",
        "simpo_gamma": "has no effect with stage dpo",
        "pref_loss": "taken",
    },
)
LLAMAFACTORY["orpo"] = Case(
    """
model_name_or_path: m/base
stage: dpo
pref_loss: orpo
pref_beta: 0.05
dataset: dpo_en_demo
learning_rate: 8.0e-6
loraplus_lr_ratio: 16
loraplus_lr_embedding: 2.0e-6
output_dir: out
""",
    """
model:
  path: m/base
data:
  train: [{catalog: data/dataset_info.json, name: dpo_en_demo}]
  sequence_length: 2048
  truncation: keep_start
  packing: false
stage: {name: orpo, beta: 0.05}
adapter: {name: lora, rank: 8, targets: all-linear}
optimizer: {name: loraplus, learning_rate: 8.0e-06, ratio: 16, embedding_learning_rate: 2.0e-06}
schedule: {name: linear, warmup_steps: 0}
training:
  epochs: 3.0
  global_batch: 8
  micro_batch: 8
  gradient_checkpointing: true
  seed: 42
storage:
  run: out
""",
    {"pref_loss": "no stage 'orpo'", "loraplus_lr_ratio": "no optimizer 'loraplus'"},
)
LLAMAFACTORY["simpo"] = Case(
    """
model_name_or_path: m/base
stage: dpo
pref_loss: simpo
simpo_gamma: 0.7
finetuning_type: oft
oft_block_size: 16
module_dropout: 0.1
oft_target: q_proj
dataset: dpo_en_demo
learning_rate: 8.0e-7
use_badam: true
badam_mode: ratio
badam_update_ratio: 0.1
output_dir: out
""",
    """
model:
  path: m/base
data:
  train: [{catalog: data/dataset_info.json, name: dpo_en_demo}]
  sequence_length: 2048
  truncation: keep_start
  packing: false
stage: {name: simpo, gamma: 0.7, beta: 0.1}
adapter: {name: oft, block_size: 16, dropout: 0.1, targets: all-linear}
optimizer: {name: badam, learning_rate: 8.0e-07, mode: ratio, update_ratio: 0.1, order: ascending, switch_every: 50}
schedule: {name: linear, warmup_steps: 0}
training:
  epochs: 3.0
  global_batch: 8
  micro_batch: 8
  gradient_checkpointing: true
  seed: 42
storage:
  run: out
""",
    {"oft_target": "never reads it", "use_badam": "no optimizer 'badam'", "finetuning_type": "no adapter 'oft'"},
)
LLAMAFACTORY["kto"] = Case(
    """
model_name_or_path: m/base
quantization_bit: 4
quantization_method: bnb
double_quantization: true
stage: kto
pref_beta: 0.1
kto_chosen_weight: 1.5
kto_rejected_weight: 1.0
finetuning_type: lora
pissa_init: true
pissa_iter: 16
dataset: kto_en_demo
learning_rate: 5.0e-6
optim: paged_adamw_8bit
neftune_noise_alpha: 5
output_dir: saves/kto
""",
    """
model:
  path: m/base
  quantization: nf4
data:
  train: [{catalog: data/dataset_info.json, name: kto_en_demo}]
  sequence_length: 2048
  truncation: keep_start
  packing: false
stage: {name: kto, beta: 0.1, desirable_weight: 1.5, undesirable_weight: 1.0, neftune_alpha: 5}
adapter: {name: lora, init: pissa_niter_16, rank: 8, targets: all-linear}
optimizer: {name: paged_adamw_8bit, learning_rate: 5.0e-06}
schedule: {name: linear, warmup_steps: 0}
training:
  epochs: 3.0
  global_batch: 8
  micro_batch: 8
  gradient_checkpointing: true
  seed: 42
storage:
  run: kto
""",
    {
        "quantization_bit": "taken",
        "double_quantization": "default",
        "optim": "no optimizer 'paged_adamw_8bit'",
    },
)
LLAMAFACTORY["ppo"] = Case(
    """
model_name_or_path: m/base
reward_model: saves/llama3-8b/lora/reward
stage: ppo
finetuning_type: lora
dataset: identity
ppo_epochs: 2
ppo_target: 5.0
ppo_score_norm: false
ppo_buffer_size: 4
max_new_tokens: 512
top_k: 0
top_p: 0.9
temperature: 0.8
learning_rate: 1.0e-5
use_muon: true
output_dir: saves/ppo
""",
    """
model:
  path: m/base
data:
  train: [{catalog: data/dataset_info.json, name: identity}]
  sequence_length: 2048
  truncation: keep_start
  packing: false
stage: {name: ppo, reward: saves/llama3-8b/lora/reward, epochs: 2, kl_target: 5.0}
adapter: {name: lora, rank: 8, targets: all-linear}
optimizer: {name: muon, learning_rate: 1.0e-05}
schedule: {name: linear, warmup_steps: 0}
training:
  epochs: 3.0
  global_batch: 8
  micro_batch: 8
  gradient_checkpointing: true
  seed: 42
generation:
  max_tokens: 512
  temperature: 0.8
  top_p: 0.9
  top_k: 0
storage:
  run: ppo
""",
    {"ppo_buffer_size": "one global batch", "ppo_score_norm": "default", "use_muon": "no optimizer 'muon'"},
)
LLAMAFACTORY["freeze_galore"] = Case(
    """
model_name_or_path: m/base
stage: sft
finetuning_type: freeze
freeze_trainable_layers: 8
freeze_trainable_modules: mlp, self_attn
freeze_extra_modules: embed_tokens
use_llama_pro: false
dataset: a,b
mix_strategy: interleave_over
interleave_probs: 0.7,0.3
eval_dataset: held
train_on_prompt: true
use_galore: true
galore_rank: 128
galore_scale: 2.0
galore_layerwise: false
use_apollo: true
apollo_rank: 256
learning_rate: 1.0e-5
num_train_epochs: 2
export_size: 2
cutof_len: 1024
image_max_pixels: 262144
output_dir: saves/freeze
""",
    """
model:
  path: m/base
data:
  train: [{catalog: data/dataset_info.json, name: a, weight: 0.7}, {catalog: data/dataset_info.json, name: b, weight: 0.3}]
  validation: [{catalog: data/dataset_info.json, name: held}]
  sequence_length: 2048
  truncation: keep_start
  packing: false
  epoch_ends: all
stage: {name: sft}
adapter: {name: freeze, layers: 8, modules: [mlp, self_attn], extra_modules: [embed_tokens]}
optimizer: {name: galore, rank: 128, scale: 2.0, learning_rate: 1.0e-05, update_every: 200}
schedule: {name: linear, warmup_steps: 0}
training:
  epochs: 2.0
  global_batch: 8
  micro_batch: 8
  gradient_checkpointing: true
  seed: 42
storage:
  run: freeze
""",
    {
        "train_on_prompt": "answers alone",
        "eval_dataset": "taken",
        "use_apollo": "two optimizers",
        "apollo_rank": "has no effect with optimizer galore",
        "cutof_len": "did you mean 'cutoff_len'",
        "image_max_pixels": "text only",
        "export_size": "cairn export",
    },
)

AXOLOTL: dict[str, Case] = {}
AXOLOTL["qlora"] = Case(
    """
base_model: meta-llama/Llama-3.2-1B
model_type: LlamaForCausalLM
load_in_8bit: false
load_in_4bit: true
strict: false
datasets:
  - path: teknium/GPT4-LLM-Cleaned
    type: alpaca
  - path: ./chats.jsonl
    type: chat_template
    field_messages: conversations
    message_property_mappings: {role: from, content: value}
    roles: {user: [human], assistant: [gpt, assistant]}
    roles_to_train: [assistant]
    split: train
test_datasets:
  - path: ./held.jsonl
    type: chat_template
dataset_prepared_path: last_run_prepared
val_set_size: 0.0
output_dir: ./outputs/qlora-out
adapter: qlora
lora_model_dir:
sequence_len: 4096
sample_packing: true
pad_to_sequence_len: true
lora_r: 32
lora_alpha: 16
lora_dropout: 0.05
lora_target_linear: true
wandb_project: mine
wandb_entity:
wandb_name: first run
gradient_accumulation_steps: 4
micro_batch_size: 2
num_epochs: 4
optimizer: paged_adamw_32bit
lr_scheduler: cosine
cosine_min_lr_ratio: 0.1
learning_rate: "2e-4"
bf16: auto
tf32: false
gradient_checkpointing: true
logging_steps: 1
flash_attention: true
evals_per_epoch: 4
weight_decay: 0.0
special_tokens:
  pad_token: "<|end_of_text|>"
""",
    """
model:
  path: meta-llama/Llama-3.2-1B
  attention: flash_attention_2
  quantization: nf4
data:
  train: [{path: 'hf://datasets/teknium/GPT4-LLM-Cleaned', format: alpaca}, {path: ./chats.jsonl, format: {like: openai, rename: {messages: conversations, role: from, content: value}, roles: {human: user, gpt: assistant}}}]
  validation: [{path: ./held.jsonl, format: openai}]
  sequence_length: 4096
  packing: true
stage: {name: sft}
adapter: {name: lora, rank: 32, alpha: 16, dropout: 0.05, targets: all-linear}
optimizer: {name: paged_adamw, learning_rate: 0.0002, weight_decay: 0.0}
schedule: {name: cosine, floor: 0.1}
training:
  epochs: 4.0
  global_batch: 8
  micro_batch: 2
  precision: bf16
  gradient_checkpointing: true
  seed: 42
  log_every: 1
  trackers: [jsonl, wandb]
storage:
  run: first-run
""",
    {
        "test_datasets.0.type": "taken",
        "wandb_project": "no tracker wandb",
        "pad_to_sequence_len": "never padded",
        "evals_per_epoch": "training.evaluate_every",
        "strict": "default",
        "datasets.1.split": "default",
        "output_dir": "by their names",
    },
)
AXOLOTL["dpo"] = Case(
    """
base_model: m/base
rl: ipo
rl_beta: 0.3
rpo_alpha: 1.0
datasets:
  - path: org/pairs
    type: chat_template.default
    field_messages: conversation
    field_chosen: chosen
    field_rejected: rejected
    revision: main2
    data_files: [a.parquet, b.parquet]
adapter: lora
load_in_8bit: true
lora_r: 8
lora_alpha: 16
lora_target_modules: [q_proj, v_proj]
peft_use_dora: true
learning_rate: 0.00001
optimizer: adamw_torch
micro_batch_size: 1
deepspeed: deepspeed_configs/zero2.json
max_steps: 50
warmup_steps: 10
trl:
  beta: 0.4
  use_vllm: false
evaluation_stratgy: epoch
""",
    """
model:
  path: m/base
  quantization: int8
data:
  train: ['hf://datasets/org/pairs@main2/a.parquet', 'hf://datasets/org/pairs@main2/b.parquet']
  sequence_length: 512
  packing: false
stage: {name: dpo, loss: ipo, beta: 0.4, sft_weight: 1.0}
adapter: {name: lora, rank: 8, alpha: 16, targets: [q_proj, v_proj], use_dora: true}
optimizer: {name: adamw, learning_rate: 1.0e-05}
schedule: {name: cosine, warmup_steps: 10}
training:
  steps: 50
  global_batch: 1
  micro_batch: 1
  precision: bf16
  zero_stage: 2
  gradient_checkpointing: false
  seed: 42
""",
    {
        "datasets.0.type": "detected from the rows",
        "evaluation_stratgy": "did you mean 'evaluation_strategy'",
        "deepspeed": "by its name",
        "rl": "stage.loss ipo",
        "trl.use_vllm": "default",
    },
)
AXOLOTL["text"] = Case(
    """
base_model: ./models/tiny
datasets:
  - path: ./corpus.jsonl
    type: completion
    field: body
learning_rate: 0.0003
micro_batch_size: 4
gradient_accumulation_steps: 2
num_epochs: 1
lr_scheduler: linear
optimizer: adamw_torch_fused
sequence_len: 2048
sample_packing: true
bf16: true
val_set_size: 0
output_dir: ./model-out
""",
    """
model:
  path: ./models/tiny
data:
  train: [{path: ./corpus.jsonl, format: {like: text, rename: {text: body}}}]
  sequence_length: 2048
  packing: true
stage: {name: pretrain}
adapter: {name: full}
optimizer: {name: adamw, learning_rate: 0.0003}
schedule: {name: linear}
training:
  epochs: 1.0
  global_batch: 8
  micro_batch: 4
  precision: bf16
  gradient_checkpointing: false
  seed: 42
storage:
  run: model-out
""",
    {"adapter": "implied", "datasets.0.field": "as its format", "val_set_size": "default"},
)
