"""The inference service on a real Serve, asked by the official OpenAI client."""

from __future__ import annotations

import json
import shutil
import threading
import time
from pathlib import Path
from typing import Any

import httpx
import openai
import pytest
from tests.serving.conftest import Service
from tests.tiny import build_model, build_tokenizer

pytestmark = pytest.mark.ray

MESSAGES: list[Any] = [{"role": "user", "content": "Say something."}]
PROMPT = "The quick brown fox"


def complete(service: Service, model: str, **settings: Any) -> Any:
    wanted = {"prompt": PROMPT, "max_tokens": 12, "temperature": 0, "logprobs": 0, **settings}
    return service.client().completions.create(model=model, **wanted)


def expected_logprobs(service: Service, folder: str | None) -> list[float]:
    """Greedy log-probabilities by the Generator in this process."""
    from cairn.adapters.files import read_lora
    from cairn.generation.generator import Generator
    from cairn.generation.request import Request

    generator = Generator(build_model(), build_tokenizer())
    if folder:
        generator.load("it", read_lora(service.folders[folder]))
    tokens = tuple(build_tokenizer()(PROMPT)["input_ids"])
    request = Request(tokens, adapter="it" if folder else None, max_tokens=12, logprobs=0)
    return [entry.logprob for entry in generator.generate([request])[0].logprobs]


@pytest.mark.parametrize(
    ("model", "folder", "label"),
    [
        ("tiny", None, "tiny"),
        ("base", None, "tiny"),
        ("support", "large", "support@2"),
        ("support@1", "small", "support@1"),
        ("support@prod", "small", "support@1"),
        ("legal", "rslora", "legal@1"),
    ],
)
def test_the_model_names_base_adapter_version_or_alias(
    service: Service, model: str, folder: str | None, label: str
) -> None:
    answer = complete(service, model)
    assert answer.model == label
    assert answer.choices[0].logprobs.token_logprobs == pytest.approx(expected_logprobs(service, folder), abs=1e-4)
    assert answer.usage.prompt_tokens == len(PROMPT)
    assert answer.usage.completion_tokens == len(answer.choices[0].logprobs.tokens)


def test_streams_say_what_whole_answers_say(service: Service) -> None:
    client = service.client()
    whole = client.chat.completions.create(model="support", messages=MESSAGES, max_tokens=20, temperature=0)
    chunks = list(
        client.chat.completions.create(
            model="support",
            messages=MESSAGES,
            max_tokens=20,
            temperature=0,
            stream=True,
            stream_options={"include_usage": True},
        )
    )
    text = "".join(chunk.choices[0].delta.content or "" for chunk in chunks if chunk.choices)
    assert text == whole.choices[0].message.content
    assert whole.choices[0].message.role == chunks[0].choices[0].delta.role == "assistant"
    assert [chunk.choices[0].finish_reason for chunk in chunks if chunk.choices][-1] == whole.choices[0].finish_reason
    assert chunks[-1].choices == []
    assert chunks[-1].usage == whole.usage
    assert all(chunk.usage is None for chunk in chunks[:-1])
    completion = complete(service, "support")
    streamed = list(complete(service, "support", stream=True))
    assert "".join(chunk.choices[0].text for chunk in streamed) == completion.choices[0].text


def test_the_chat_template_is_the_models_own(service: Service) -> None:
    tokens = build_tokenizer().apply_chat_template(MESSAGES, add_generation_prompt=True, tokenize=True)["input_ids"]
    chat = service.client().chat.completions.create(model="tiny", messages=MESSAGES, max_tokens=8, temperature=0)
    plain = complete(service, "tiny", prompt=tokens, max_tokens=8)
    assert chat.usage.prompt_tokens == len(tokens)
    assert chat.choices[0].message.content == plain.choices[0].text


def test_several_prompts_copies_and_seeds(service: Service) -> None:
    answer = complete(service, "tiny", prompt=["a", "bc"], n=2, temperature=1.0, seed=5, max_tokens=6)
    again = complete(service, "tiny", prompt=["a", "bc"], n=2, temperature=1.0, seed=5, max_tokens=6)
    assert [choice.index for choice in answer.choices] == [0, 1, 2, 3]
    assert [c.logprobs.token_logprobs for c in answer.choices] == [
        pytest.approx(c.logprobs.token_logprobs, abs=1e-4) for c in again.choices
    ]
    assert answer.choices[0].logprobs.token_logprobs != answer.choices[1].logprobs.token_logprobs
    assert answer.usage.prompt_tokens == 3


def test_stop_strings_and_chat_logprobs(service: Service) -> None:
    full = complete(service, "tiny", max_tokens=24).choices[0].text
    word = next(full[i : i + 2] for i in range(2, len(full)) if full.find(full[i : i + 2]) == i)
    cut = complete(service, "tiny", max_tokens=24, stop=[word]).choices[0]
    assert (cut.text, cut.finish_reason) == (full[: full.find(word)], "stop")
    chat = service.client().chat.completions.create(
        model="tiny", messages=MESSAGES, max_tokens=3, temperature=0, logprobs=True, top_logprobs=2
    )
    entries = chat.choices[0].logprobs.content
    assert all(len(entry.top_logprobs) == 2 for entry in entries)
    assert all(entry.logprob == pytest.approx(entry.top_logprobs[0].logprob) for entry in entries)


def test_a_late_request_starts_while_others_stream_with_other_adapters(service: Service) -> None:
    times: dict[str, list[float]] = {}
    started = threading.Barrier(4)

    def consume(label: str, model: str, count: int) -> None:
        stream = complete(service, model, stream=True, max_tokens=count, temperature=1.0, seed=1)
        times[label] = []
        for i, _ in enumerate(stream):
            times[label].append(time.monotonic())
            if i == 0 and label != "late":
                started.wait(timeout=20)

    models = {"base": "tiny", "support": "support", "legal": "legal"}
    threads = [threading.Thread(target=consume, args=(label, model, 400)) for label, model in models.items()]
    for thread in threads:
        thread.start()
    started.wait(timeout=20)
    consume("late", "support@1", 3)
    for thread in threads:
        thread.join()
    assert times["late"][0] < min(times[label][-1] for label in models)


def test_models_are_listed(service: Service) -> None:
    client = service.client()
    listed = {model.id: model for model in client.models.list()}
    expected = {"tiny", "support", "support@1", "support@2", "support@prod", "legal", "legal@1", "foreign"}
    assert expected <= set(listed)
    assert listed["support"].parent == "tiny"
    assert client.models.retrieve("support@prod").root == listed["support@1"].root
    with pytest.raises(openai.NotFoundError):
        client.models.retrieve("nobody")


def test_unknown_model_is_404(service: Service) -> None:
    for name in ("suport", "support@9", "support@nowhere", "../../etc/passwd", ""):
        with pytest.raises(openai.NotFoundError) as refused:
            complete(service, name)
        assert refused.value.body["code"] == "model_not_found"
        assert refused.value.body["param"] == "model"
    with pytest.raises(openai.NotFoundError, match="did you mean 'support'"):
        complete(service, "suport")


@pytest.mark.parametrize(
    ("change", "param", "message"),
    [
        ({"max_tokens": 0}, "max_tokens", "at least 1"),
        ({"temperature": -1}, "temperature", "from 0 to 100"),
        ({"prompt": ""}, "prompt", "no tokens"),
        ({"prompt": "x" * 600}, "prompt", "the prompt has 600 tokens and the window is 512"),
        ({"prompt": [999]}, "prompt", "token ids go from 0"),
        ({"n": 99}, "n", "less than or equal to 16"),
        ({"presence_penalty": 1.0}, "presence_penalty", "not supported"),
        ({"temprature": 1}, "temprature", "did you mean 'temperature'"),
        ({"stream": "perhaps"}, "stream", "valid boolean"),
    ],
)
def test_a_bad_body_is_400(service: Service, change: dict[str, Any], param: str, message: str) -> None:
    body = {"model": "tiny", "prompt": PROMPT, "max_tokens": 2, **change}
    answer = httpx.post(f"{service.url}/v1/completions", json=body)
    error = answer.json()["error"]
    assert answer.status_code == 400
    assert (error["param"], error["type"]) == (param, "invalid_request_error")
    assert message in error["message"]


def test_other_refusals_have_the_same_shape(service: Service) -> None:
    broken = httpx.post(f"{service.url}/v1/completions", content=b"{")
    assert (broken.status_code, broken.json()["error"]["type"]) == (400, "invalid_request_error")
    missing = httpx.post(f"{service.url}/v1/completions", json={"prompt": "a"})
    assert (missing.status_code, missing.json()["error"]["param"]) == (400, "model")
    nowhere = httpx.get(f"{service.url}/v1/nowhere")
    assert (nowhere.status_code, "error" in nowhere.json()) == (404, True)
    image = [{"role": "user", "content": [{"type": "image_url", "image_url": {"url": "x"}}]}]
    chat = httpx.post(f"{service.url}/v1/chat/completions", json={"model": "tiny", "messages": image})
    assert chat.status_code == 400


def test_an_adapter_of_another_base_is_refused(service: Service) -> None:
    with pytest.raises(openai.BadRequestError, match="made for another base model"):
        complete(service, "foreign")


def test_load_and_unload_while_requests_run(service: Service) -> None:
    before = complete(service, "support").choices[0].logprobs.token_logprobs
    running: list[str] = []

    def stream() -> None:
        chunks = complete(service, "support", stream=True, max_tokens=200, temperature=1.0, seed=2)
        running.extend(chunk.choices[0].finish_reason or "" for chunk in chunks)

    threads = [threading.Thread(target=stream) for _ in range(3)]
    for thread in threads:
        thread.start()
    load = {"lora_name": "fresh", "lora_path": str(service.folders["small"])}
    for _ in range(3):
        assert httpx.post(f"{service.url}/v1/load_lora_adapter", json=load).status_code == 200
        assert complete(service, "fresh").choices[0].logprobs.token_logprobs == pytest.approx(
            expected_logprobs(service, "small"), abs=1e-4
        )
        assert httpx.post(f"{service.url}/v1/load_lora_adapter", json=load).status_code == 400
        assert httpx.post(f"{service.url}/v1/unload_lora_adapter", json={"lora_name": "fresh"}).status_code == 200
        with pytest.raises(openai.NotFoundError):
            complete(service, "fresh")
    for thread in threads:
        thread.join()
    assert [reason for reason in running if reason] in (["length"] * 3, ["stop"] * 3, ["length", "stop", "stop"])
    assert complete(service, "support").choices[0].logprobs.token_logprobs == pytest.approx(before, abs=1e-4)
    assert httpx.post(f"{service.url}/v1/unload_lora_adapter", json={"lora_name": "fresh"}).status_code == 404


def test_bad_adapters_are_refused_with_the_reason(service: Service, tmp_path_factory: pytest.TempPathFactory) -> None:
    root = service.folders["small"].parent

    def load(name: str, path: Path) -> tuple[int, str]:
        answer = httpx.post(f"{service.url}/v1/load_lora_adapter", json={"lora_name": name, "lora_path": str(path)})
        return answer.status_code, answer.json().get("error", {}).get("message", "")

    for name, spoil, reason in (
        ("truncated", lambda f: (f / "adapter_model.safetensors").write_bytes(b"\x00" * 100), "safetensors"),
        ("pickled", lambda f: (f / "adapter_model.safetensors").rename(f / "adapter_model.bin"), "safetensors"),
        ("pissa", lambda f: _edit(f, init_lora_weights="pissa"), "init_lora_weights"),
    ):
        folder = root / name
        shutil.copytree(service.folders["small"], folder)
        spoil(folder)
        status, message = load(name, folder)
        assert (status, reason in message) == (400, True), message
        shutil.rmtree(folder)
    assert load("support", service.folders["small"])[0] == 400
    assert load("../x", service.folders["small"])[0] == 400
    assert load("away", root / "nowhere")[0] == 400
    outside = shutil.copytree(service.folders["small"], tmp_path_factory.mktemp("outside") / "small")
    assert load("outside", outside)[0] == 403
    assert load("dots", root / ".." / outside.parent.name / "small")[0] == 403
    assert complete(service, "support").choices[0].logprobs.token_logprobs == pytest.approx(
        expected_logprobs(service, "large"), abs=1e-4
    )


def _edit(folder: Path, **changes: Any) -> None:
    path = folder / "adapter_config.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), **changes}))


def test_a_client_that_leaves_frees_its_row(service: Service) -> None:
    from ray import serve

    replica = serve.get_deployment_handle("Replica", "inference")
    body = {"model": "support", "prompt": PROMPT, "max_tokens": 480, "temperature": 1.0, "stop": ["never"]}
    for stream in (True, False):
        with httpx.Client(timeout=httpx.Timeout(30, read=30 if stream else 0.3)) as client:
            if stream:
                with client.stream("POST", f"{service.url}/v1/completions", json={**body, "stream": True}) as answer:
                    next(answer.iter_lines())
            else:
                with pytest.raises(httpx.ReadTimeout):
                    client.post(f"{service.url}/v1/completions", json={**body, "n": 16})
        deadline = time.monotonic() + 5
        while (load := replica.load.remote().result())["running"] and time.monotonic() < deadline:
            time.sleep(0.02)
        assert (load["running"], load["waiting"]) == (0, 0)


def test_health(service: Service) -> None:
    assert httpx.get(f"{service.url}/health").json() == {"status": "ok", "model": "tiny"}


def test_an_occupied_port_is_a_clear_error(service: Service) -> None:
    from cairn.errors import UserError
    from cairn.serving.deploy import require_free_port

    port = int(service.url.rsplit(":", 1)[1])
    with pytest.raises(UserError, match=f"port {port} on 127.0.0.1 cannot be used") as refused:
        require_free_port("127.0.0.1", port)
    assert "choose another port" in refused.value.next_step


def test_a_key_is_asked_for_when_one_is_set(service: Service) -> None:
    """A second gateway with a key, before the same replica."""
    from ray import serve

    from cairn.serving.deploy import gateway_application

    replica = serve.get_deployment_handle("Replica", "inference")
    locked = gateway_application(replica, key="s3cret", base_name="tiny")
    serve.run(locked, name="locked", route_prefix="/locked")
    try:
        good = openai.OpenAI(base_url=f"{service.url}/locked/v1", api_key="s3cret", max_retries=0)
        assert next(model.id for model in good.models.list()) == "tiny"
        for key in ("wrong", "s3cre", "s3crets"):
            bad = openai.OpenAI(base_url=f"{service.url}/locked/v1", api_key=key, max_retries=0)
            with pytest.raises(openai.AuthenticationError) as refused:
                bad.completions.create(model="tiny", prompt="a", max_tokens=1)
            assert refused.value.body["code"] == "invalid_api_key"
        assert httpx.get(f"{service.url}/locked/v1/models").status_code == 401
        assert httpx.get(f"{service.url}/locked/health").status_code == 200
    finally:
        serve.delete("locked")


def test_a_mixture_is_answered_over_http(service: Service) -> None:
    answer = complete(service, "support@prod:0.7+legal:0.3")
    assert answer.model == "support@1:0.7+legal@1:0.3"
    parts = [complete(service, model).choices[0].logprobs.token_logprobs for model in ("support@1", "legal")]
    assert all(answer.choices[0].logprobs.token_logprobs != pytest.approx(part, abs=1e-3) for part in parts)
    alone = complete(service, "support@1:1")
    assert alone.choices[0].logprobs.token_logprobs == pytest.approx(parts[0], abs=1e-4)
    with pytest.raises(openai.NotFoundError, match="did you mean 'support'"):
        complete(service, "suport:0.7+legal:0.3")
    with pytest.raises(openai.BadRequestError, match="cannot be the weight of support"):
        complete(service, "support:heavy")
