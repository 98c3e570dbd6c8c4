#!/usr/bin/env python3
"""openai_client_test.py PROGRAM PACKAGES: OpenAI's own client library against `zeepo serve`.

The library is taken from where Python finds it, else installed below PACKAGES. Where neither works the test says so and
ends with 77: skipped.
"""
import importlib
import subprocess
import sys
import tempfile
from pathlib import Path

from server import Server, generated, make_model

PROGRAM, PACKAGES = sys.argv[1], Path(sys.argv[2])
SKIPPED = 77


def find_library():
    sys.path.append(str(PACKAGES))
    try:
        import openai
        return openai
    except ImportError:
        pass
    pip = [sys.executable, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--target", PACKAGES]
    try:
        subprocess.run([*pip, "openai"], check=True, timeout=120, capture_output=True)
        importlib.invalidate_caches()
        import openai
        return openai
    except (subprocess.SubprocessError, OSError, ImportError) as fault:
        print("no openai library, and none to be had:", fault)
        sys.exit(SKIPPED)


def main():
    openai = find_library()
    with tempfile.TemporaryDirectory() as name:
        directory = Path(name)
        model = make_model(PROGRAM, directory)
        expected = generated(PROGRAM, model, ["one two three"], 12)["one two three"]["text"]
        (directory / "keys").write_text("secret\n")
        with Server(PROGRAM, model, "--api-key-file", directory / "keys") as server:
            address = f"http://127.0.0.1:{server.port}/v1"
            client = openai.OpenAI(base_url=address, api_key="secret", max_retries=0, timeout=30)
            assert [one.id for one in client.models.list()] == ["tiny-chat"]
            assert client.models.retrieve("tiny-chat").id == "tiny-chat"
            asked = dict(model="tiny-chat", prompt="one two three", max_tokens=12, temperature=0)
            assert client.completions.create(**asked).choices[0].text == expected
            scored = client.completions.create(**asked, echo=True, logprobs=1)
            assert scored.choices[0].text == "one two three" + expected
            assert len(scored.choices[0].logprobs.token_logprobs) == scored.usage.total_tokens
            pieces = [chunk.choices[0].text for chunk in client.completions.create(**asked, stream=True)]
            assert "".join(pieces) == expected and len(pieces) > 1
            talk = dict(model="tiny-chat", messages=[{"role": "user", "content": "hello"}], max_tokens=8, temperature=0)
            whole = client.chat.completions.create(**talk, logprobs=True, top_logprobs=2)
            assert whole.choices[0].message.role == "assistant" and whole.usage.completion_tokens <= 8
            assert len(whole.choices[0].logprobs.content) == whole.usage.completion_tokens
            chunks = list(client.chat.completions.create(**talk, stream=True, stream_options={"include_usage": True}))
            text = "".join(chunk.choices[0].delta.content or "" for chunk in chunks if chunk.choices)
            assert text == whole.choices[0].message.content
            assert chunks[-1].usage == whole.usage
            for wrong, fault in ((dict(talk, model="other"), openai.NotFoundError),
                                 (dict(talk, max_tokens=-1), openai.BadRequestError)):
                try:
                    client.chat.completions.create(**wrong)
                    raise AssertionError("was answered")
                except fault:
                    pass
            try:
                openai.OpenAI(base_url=address, api_key="wrong", max_retries=0).models.list()
                raise AssertionError("was answered")
            except openai.AuthenticationError:
                pass


main()
