"""Writes chat_cases.json: templates, what they are given, and what Jinja makes of them, set up as transformers sets it up.

"families" are whole chat templates, written in the manner of the families that zeepo trains, each with several
conversations. "pieces" are one construct each. A case that Jinja refuses has "error" instead of "text". Run with the
`jinja2` package installed; the output is committed, so that the tests need no Python.
"""
import datetime
import json
import pathlib

import jinja2
import jinja2.ext
import jinja2.sandbox

HERE = pathlib.Path(__file__).parent
NOW = datetime.datetime(2024, 7, 26, 12, 0, 0)


class Generation(jinja2.ext.Extension):
    """{% generation %}: remembers what it wrote, which the tests look for in the text."""

    tags = {"generation"}

    def __init__(self, environment):
        super().__init__(environment)
        environment.generated = []

    def parse(self, parser):
        line = next(parser.stream).lineno
        body = parser.parse_statements(["name:endgeneration"], drop_needle=True)
        return jinja2.nodes.CallBlock(self.call_method("_support"), [], [], body).set_lineno(line)

    def _support(self, caller):
        text = caller()
        self.environment.generated.append(text)
        return text


def raise_exception(message):
    raise jinja2.exceptions.TemplateError(message)


def tojson(x, ensure_ascii=False, indent=None, separators=None, sort_keys=False):
    return json.dumps(x, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys)


def environment():
    env = jinja2.sandbox.ImmutableSandboxedEnvironment(
        trim_blocks=True, lstrip_blocks=True, extensions=[Generation, jinja2.ext.loopcontrols])
    env.filters["tojson"] = tojson
    env.globals["raise_exception"] = raise_exception
    env.globals["strftime_now"] = NOW.strftime
    return env


def render(source, variables):
    env = environment()
    try:
        text = env.from_string(source).render(**variables)
    except Exception as error:
        return {"error": f"{type(error).__name__}: {error}"}
    return {"text": text, "generated": env.generated}


CHATML = """{% for message in messages %}{{'<|im_start|>' + message['role'] + '\\n' + message['content'] + '<|im_end|>' + '\\n'}}{% endfor %}{% if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}{% endif %}"""

CHATML_GENERATION = """{%- for message in messages %}
    {{- '<|im_start|>' + message.role + '\\n' }}
    {%- if message.role == 'assistant' %}
        {%- generation %}{{- message.content + '<|im_end|>' }}{% endgeneration %}
        {{- '\\n' }}
    {%- else %}
        {{- message.content + '<|im_end|>\\n' }}
    {%- endif %}
{%- endfor %}
{%- if add_generation_prompt %}{{- '<|im_start|>assistant\\n' }}{%- endif %}
"""

LLAMA2 = """{% if messages[0]['role'] == 'system' %}{% set rest = messages[1:] %}{% set system = messages[0]['content'] %}{% else %}{% set rest = messages %}{% set system = false %}{% endif %}{% for message in rest %}{% if (message['role'] == 'user') != (loop.index0 % 2 == 0) %}{{ raise_exception('roles must take turns') }}{% endif %}{% if loop.index0 == 0 and system != false %}{% set content = '<<SYS>>\\n' + system + '\\n<</SYS>>\\n\\n' + message['content'] %}{% else %}{% set content = message['content'] %}{% endif %}{% if message['role'] == 'user' %}{{ bos_token + '[INST] ' + content.strip() + ' [/INST]' }}{% elif message['role'] == 'assistant' %}{{ ' '  + content.strip() + ' ' + eos_token }}{% endif %}{% endfor %}"""

LLAMA3 = """{% set loop_messages = messages %}{% for message in loop_messages %}{% set content = '<|start_header_id|>' + message['role'] + '<|end_header_id|>\\n\\n'+ message['content'] | trim + '<|eot_id|>' %}{% if loop.index0 == 0 %}{% set content = bos_token + content %}{% endif %}{{ content }}{% endfor %}{% if add_generation_prompt %}{{ '<|start_header_id|>assistant<|end_header_id|>\\n\\n' }}{% endif %}"""

LLAMA31 = """{{- bos_token }}
{%- if custom_tools is defined %}
    {%- set tools = custom_tools %}
{%- endif %}
{%- if not date_string is defined %}
    {%- if strftime_now is defined %}
        {%- set date_string = strftime_now("%d %b %Y") %}
    {%- else %}
        {%- set date_string = "26 Jul 2024" %}
    {%- endif %}
{%- endif %}
{%- if not tools is defined %}{%- set tools = none %}{%- endif %}

{#- The system's words come first. -#}
{%- if messages[0]['role'] == 'system' %}
    {%- set system_message = messages[0]['content']|trim %}
    {%- set messages = messages[1:] %}
{%- else %}
    {%- set system_message = "" %}
{%- endif %}
{{- "<|start_header_id|>system<|end_header_id|>\\n\\n" }}
{%- if builtin_tools is defined or tools is not none %}
    {{- "Environment: ipython\\n" }}
{%- endif %}
{%- if builtin_tools is defined %}
    {{- "Tools: " + builtin_tools | reject('equalto', 'code_interpreter') | join(", ") + "\\n\\n"}}
{%- endif %}
{{- "Today Date: " + date_string + "\\n\\n" }}
{%- if tools is not none %}
    {%- for t in tools %}
        {{- t | tojson(indent=4) }}
        {{- "\\n\\n" }}
    {%- endfor %}
{%- endif %}
{{- system_message }}
{{- "<|eot_id|>" }}
{%- for message in messages %}
    {%- if not (message.role == 'ipython' or message.role == 'tool' or 'tool_calls' in message) %}
        {{- '<|start_header_id|>' + message['role'] + '<|end_header_id|>\\n\\n'+ message['content'] | trim + '<|eot_id|>' }}
    {%- elif 'tool_calls' in message %}
        {%- if not message.tool_calls|length == 1 %}
            {{- raise_exception("one tool call at a time") }}
        {%- endif %}
        {%- set tool_call = message.tool_calls[0].function %}
        {{- '<|start_header_id|>assistant<|end_header_id|>\\n\\n' -}}
        {{- '{"name": "' + tool_call.name + '", ' }}
        {{- '"parameters": ' }}
        {{- tool_call.arguments | tojson }}
        {{- "}" }}
        {{- "<|eot_id|>" }}
    {%- elif message.role == "tool" or message.role == "ipython" %}
        {{- "<|start_header_id|>ipython<|end_header_id|>\\n\\n" }}
        {%- if message.content is mapping or message.content is iterable %}
            {{- message.content | tojson }}
        {%- else %}
            {{- message.content }}
        {%- endif %}
        {{- "<|eot_id|>" }}
    {%- endif %}
{%- endfor %}
{%- if add_generation_prompt %}
    {{- '<|start_header_id|>assistant<|end_header_id|>\\n\\n' }}
{%- endif %}
"""

QWEN25 = """{%- if tools %}
    {{- '<|im_start|>system\\n' }}
    {%- if messages[0]['role'] == 'system' %}
        {{- messages[0]['content'] }}
    {%- else %}
        {{- 'You help.' }}
    {%- endif %}
    {{- "\\n\\n# Tools\\n\\n<tools>" }}
    {%- for tool in tools %}
        {{- "\\n" }}
        {{- tool | tojson }}
    {%- endfor %}
    {{- "\\n</tools><|im_end|>\\n" }}
{%- else %}
    {%- if messages[0]['role'] == 'system' %}
        {{- '<|im_start|>system\\n' + messages[0]['content'] + '<|im_end|>\\n' }}
    {%- else %}
        {{- '<|im_start|>system\\nYou help.<|im_end|>\\n' }}
    {%- endif %}
{%- endif %}
{%- for message in messages %}
    {%- if (message.role == "user") or (message.role == "system" and not loop.first) or (message.role == "assistant" and not message.tool_calls) %}
        {{- '<|im_start|>' + message.role + '\\n' + message.content + '<|im_end|>' + '\\n' }}
    {%- elif message.role == "assistant" %}
        {{- '<|im_start|>' + message.role }}
        {%- if message.content %}
            {{- '\\n' + message.content }}
        {%- endif %}
        {%- for tool_call in message.tool_calls %}
            {%- if tool_call.function is defined %}
                {%- set tool_call = tool_call.function %}
            {%- endif %}
            {{- '\\n<tool_call>\\n{"name": "' }}
            {{- tool_call.name }}
            {{- '", "arguments": ' }}
            {{- tool_call.arguments | tojson }}
            {{- '}\\n</tool_call>' }}
        {%- endfor %}
        {{- '<|im_end|>\\n' }}
    {%- elif message.role == "tool" %}
        {%- if (loop.index0 == 0) or (messages[loop.index0 - 1].role != "tool") %}
            {{- '<|im_start|>user' }}
        {%- endif %}
        {{- '\\n<tool_response>\\n' }}
        {{- message.content }}
        {{- '\\n</tool_response>' }}
        {%- if loop.last or (messages[loop.index0 + 1].role != "tool") %}
            {{- '<|im_end|>\\n' }}
        {%- endif %}
    {%- endif %}
{%- endfor %}
{%- if add_generation_prompt %}
    {{- '<|im_start|>assistant\\n' }}
{%- endif %}
"""

QWEN3 = """{%- if messages[0].role == 'system' %}
    {{- '<|im_start|>system\\n' + messages[0].content + '<|im_end|>\\n' }}
{%- endif %}
{%- set ns = namespace(searching=true, last_query=messages|length - 1) %}
{%- for message in messages[::-1] %}
    {%- set index = (messages|length - 1) - loop.index0 %}
    {%- if ns.searching and message.role == "user" and message.content is string and not(message.content.startswith('<tool_response>') and message.content.endswith('</tool_response>')) %}
        {%- set ns.searching = false %}
        {%- set ns.last_query = index %}
    {%- endif %}
{%- endfor %}
{%- for message in messages %}
    {%- set content = message.content if message.content is string else '' %}
    {%- if (message.role == "user") or (message.role == "system" and not loop.first) %}
        {{- '<|im_start|>' + message.role + '\\n' + content + '<|im_end|>' + '\\n' }}
    {%- elif message.role == "assistant" %}
        {%- set reasoning = '' %}
        {%- if message.reasoning_content is string %}
            {%- set reasoning = message.reasoning_content %}
        {%- elif '</think>' in content %}
            {%- set reasoning = content.split('</think>')[0].rstrip('\\n').split('<think>')[-1].lstrip('\\n') %}
            {%- set content = content.split('</think>')[-1].lstrip('\\n') %}
        {%- endif %}
        {%- if loop.index0 > ns.last_query and (loop.last or (not loop.last and reasoning)) %}
            {{- '<|im_start|>' + message.role + '\\n<think>\\n' + reasoning.strip('\\n') + '\\n</think>\\n\\n' + content.lstrip('\\n') }}
        {%- else %}
            {{- '<|im_start|>' + message.role + '\\n' + content }}
        {%- endif %}
        {{- '<|im_end|>\\n' }}
    {%- endif %}
{%- endfor %}
{%- if add_generation_prompt %}
    {{- '<|im_start|>assistant\\n' }}
    {%- if enable_thinking is defined and enable_thinking is false %}
        {{- '<think>\\n\\n</think>\\n\\n' }}
    {%- endif %}
{%- endif %}
"""

MISTRAL = """{%- if messages[0]["role"] == "system" %}
    {%- set system_message = messages[0]["content"] %}
    {%- set loop_messages = messages[1:] %}
{%- else %}
    {%- set loop_messages = messages %}
{%- endif %}
{%- set user_messages = loop_messages | selectattr("role", "equalto", "user") | list %}
{%- set ns = namespace(index=0) %}
{%- for message in loop_messages %}
    {%- if not (message.role == "tool" or (message.tool_calls is defined and message.tool_calls is not none)) %}
        {%- if (message["role"] == "user") != (ns.index % 2 == 0) %}
            {{- raise_exception("roles must take turns") }}
        {%- endif %}
        {%- set ns.index = ns.index + 1 %}
    {%- endif %}
{%- endfor %}
{{- bos_token }}
{%- for message in loop_messages %}
    {%- if message["role"] == "user" %}
        {%- if tools is not none and (message == user_messages[-1]) %}
            {{- "[AVAILABLE_TOOLS] [" }}
            {%- for tool in tools %}
                {%- set tool = tool.function %}
                {{- '{"type": "function", "function": {' }}
                {%- for key, val in tool.items() if key != "return" %}
                    {%- if val is string %}
                        {{- '"' + key + '": "' + val + '"' }}
                    {%- else %}
                        {{- '"' + key + '": ' + val|tojson }}
                    {%- endif %}
                    {%- if not loop.last %}{{- ", " }}{%- endif %}
                {%- endfor %}
                {{- "}}" }}
                {%- if not loop.last %}{{- ", " }}{%- else %}{{- "]" }}{%- endif %}
            {%- endfor %}
            {{- "[/AVAILABLE_TOOLS]" }}
        {%- endif %}
        {%- if loop.last and system_message is defined %}
            {{- "[INST] " + system_message + "\\n\\n" + message["content"] + "[/INST]" }}
        {%- else %}
            {{- "[INST] " + message["content"] + "[/INST]" }}
        {%- endif %}
    {%- elif message["role"] == "assistant" and message.content %}
        {{- " " + message["content"]|trim + eos_token}}
    {%- endif %}
{%- endfor %}
"""

GEMMA = """{{ bos_token }}{% if messages[0]['role'] == 'system' %}{{ raise_exception('no system role') }}{% endif %}{% for message in messages %}{% if (message['role'] == 'user') != (loop.index0 % 2 == 0) %}{{ raise_exception('roles must take turns') }}{% endif %}{% if (message['role'] == 'assistant') %}{% set role = 'model' %}{% else %}{% set role = message['role'] %}{% endif %}{{ '<start_of_turn>' + role + '\\n' + message['content'] | trim + '<end_of_turn>\\n' }}{% endfor %}{% if add_generation_prompt %}{{'<start_of_turn>model\\n'}}{% endif %}"""

GEMMA3 = """{{ bos_token }}
{%- set first_prefix = (messages[0]['content'] if messages[0]['content'] is string else messages[0]['content'][0]['text']) + '\\n\\n' if messages[0]['role'] == 'system' else "" -%}
{%- for message in (messages[1:] if messages[0]['role'] == 'system' else messages) -%}
    {%- set role = "model" if (message['role'] == 'assistant') else message['role'] -%}
    {{ '<start_of_turn>' + role + '\\n' + (first_prefix if loop.first else "") }}
    {%- if message['content'] is string -%}
        {{ message['content'] | trim }}
    {%- elif message['content'] is iterable -%}
        {%- for item in message['content'] -%}
            {%- if item['type'] == 'image' -%}{{ '<start_of_image>' }}
            {%- elif item['type'] == 'text' -%}{{ item['text'] | trim }}
            {%- endif -%}
        {%- endfor -%}
    {%- else -%}
        {{ raise_exception("Invalid content type") }}
    {%- endif -%}
    {{ '<end_of_turn>\\n' }}
{%- endfor -%}
{%- if add_generation_prompt -%}
    {{'<start_of_turn>model\\n'}}
{%- endif -%}
"""

PHI3 = """{% for message in messages %}{% if message['role'] == 'system' and message['content'] %}{{'<|system|>
' + message['content'] + '<|end|>
'}}{% elif message['role'] == 'user' %}{{'<|user|>
' + message['content'] + '<|end|>
'}}{% elif message['role'] == 'assistant' %}{{'<|assistant|>
' + message['content'] + '<|end|>
'}}{% endif %}{% endfor %}{% if add_generation_prompt %}{{ '<|assistant|>
' }}{% else %}{{ eos_token }}{% endif %}"""

ZEPHYR = """{% for message in messages %}
{% if message['role'] == 'user' %}
{{ '<|user|>
' + message['content'] + eos_token }}
{% elif message['role'] == 'system' %}
{{ '<|system|>
' + message['content'] + eos_token }}
{% elif message['role'] == 'assistant' %}
{{ '<|assistant|>
'  + message['content'] + eos_token }}
{% endif %}
{% if loop.last and add_generation_prompt %}
{{ '<|assistant|>' }}
{% endif %}
{% endfor %}"""

SMOLLM3 = """{%- set reasoning_mode = "/think" if (enable_thinking is not defined or enable_thinking) else "/no_think" -%}
{%- if messages[0].role == "system" -%}
  {%- set system_message = messages[0].content -%}
  {%- if "/no_think" in system_message -%}{%- set reasoning_mode = "/no_think" -%}{%- endif -%}
  {%- set custom = system_message.replace("/no_think", "").replace("/think", "").rstrip() -%}
{%- endif -%}
{{- "<|im_start|>system\\n" -}}
{%- set today = strftime_now("%d %B %Y") -%}
{{- "Today: " ~ today ~ "\\nMode: " + reasoning_mode + "\\n\\n" -}}
{%- if custom is defined and custom -%}{{- custom + "\\n\\n" -}}{%- endif -%}
{{- "<|im_end|>\\n" -}}
{%- for message in messages -%}
    {%- set content = message.content if message.content is string else "" -%}
    {%- if message.role == "user" -%}
        {{ "<|im_start|>" + message.role + "\\n"  + content + "<|im_end|>\\n" }}
    {%- elif message.role == "assistant" -%}
        {% generation %}
        {%- if reasoning_mode == "/think" -%}
            {{ "<|im_start|>assistant\\n" + content.lstrip("\\n") + "<|im_end|>\\n" }}
        {%- else -%}
            {{ "<|im_start|>assistant\\n" + "<think>\\n\\n</think>\\n" + content.lstrip("\\n") + "<|im_end|>\\n" }}
        {%- endif -%}
        {% endgeneration %}
    {%- endif -%}
{%- endfor -%}
{%- if add_generation_prompt -%}
    {{ "<|im_start|>assistant\\n" }}
{%- endif -%}
"""

MACROS = """{%- macro schema_type(schema, required=true) -%}
    {%- if schema.type == "array" -%}
        list[{{ schema_type(schema['items']) }}]
    {%- elif schema.type == "object" -%}
        {
        {%- for name, inner in schema.properties|dictsort -%}
            {{ name }}{{ "" if name in schema.required|default([]) else "?" }}: {{ schema_type(inner, required=false) }}
            {%- if not loop.last %}, {% endif -%}
        {%- endfor -%}
        }
    {%- elif schema.enum is defined -%}
        {{ schema.enum|map("tojson")|join(" | ") }}
    {%- else -%}
        {{ schema.type|default("any", true) }}
    {%- endif -%}
{%- endmacro -%}
{%- for tool in tools or [] %}
{{ tool.function.name }}({{ schema_type(tool.function.parameters) }})
{% endfor -%}
{%- for message in messages %}
{%- if message.content is none %}{% continue %}{% endif %}
{%- set text %}  [{{ loop.index }}/{{ loop.length }}] {{ message.content }} {% endset %}
{{ text|trim }}{% if loop.nextitem is defined %} -> {{ loop.nextitem.role }}{% endif %}
{% if message.stop is defined and message.stop %}{% break %}{% endif %}
{% endfor %}
{%- if add_generation_prompt %}>{% endif %}"""

FAMILIES = {"chatml": CHATML, "chatml-generation": CHATML_GENERATION, "llama2": LLAMA2, "llama3": LLAMA3,
            "llama3.1": LLAMA31, "qwen2.5": QWEN25, "qwen3": QWEN3, "mistral": MISTRAL, "gemma": GEMMA,
            "gemma3": GEMMA3, "phi3": PHI3, "zephyr": ZEPHYR, "smollm3": SMOLLM3, "macros": MACROS}


def say(*words, system=None):
    messages = [{"role": "system", "content": system}] if system is not None else []
    for i, text in enumerate(words):
        messages.append({"role": "user" if i % 2 == 0 else "assistant", "content": text})
    return messages


WEATHER = {"type": "function", "function": {
    "name": "weather", "description": "Tells the \"weather\" in a <place> & more: é, 日本",
    "parameters": {"type": "object", "properties": {
        "place": {"type": "string"}, "days": {"type": "array", "items": {"type": "integer"}},
        "unit": {"enum": ["C", "F"]}, "exact": {"type": "number", "default": 1.0}}, "required": ["place"]}}}
CALL = {"role": "assistant", "content": None,
        "tool_calls": [{"id": "abc123456", "type": "function",
                        "function": {"name": "weather", "arguments": {"place": "Zürich", "days": [1, 2], "exact": 1e-7}}}]}
CONVERSATIONS = {
    "one question": {"messages": say("Hello?")},
    "two turns": {"messages": say("Hi", "Hello!", " spaces  ", "\n\nlines\n"), "add_generation_prompt": True},
    "system": {"messages": say("a", "b", "c", system="Be short.\n"), "add_generation_prompt": True},
    "ends with the assistant": {"messages": say("1+1?", "2", "2+2?", "4", system="Count.")},
    "quotes and letters": {"messages": say("'it\\'s' \"q\" {{ x }} {% if %}", "naïve 日本語 🎉 <b>&amp;</b>")},
    "thinking": {"messages": say("q", "<think>\nwell\n</think>\n\nanswer", "again", "<think>\nhm\n</think>\n\nyes"),
                 "enable_thinking": True},
    "no thinking": {"messages": say("q", system="s /no_think"), "enable_thinking": False, "add_generation_prompt": True},
    "tools": {"messages": say("Weather?", system="Help.") + [CALL, {"role": "tool", "content": "{\"sun\": true}"},
                                                              {"role": "assistant", "content": "Sunny."}],
              "tools": [WEATHER], "add_generation_prompt": True},
    "parts": {"messages": [{"role": "user", "content": [{"type": "image"}, {"type": "text", "text": " What? "}]}],
              "add_generation_prompt": True},
    "roles out of turn": {"messages": [{"role": "assistant", "content": "me first"}]},
    "no messages": {"messages": []},
}
TOKENS = {"bos_token": "<s>", "eos_token": "</s>"}

VALUES = {
    "s": "Hello World", "t": "  a b  c ", "n": 7, "f": 2.5, "yes": True, "no": False, "nothing": None,
    "xs": [3, 1, 2], "words": ["b", "A", "c", "b"], "empty": [], "d": {"b": 1, "a": {"x": [1, 2]}, "items": "mine"},
    "rows": [{"k": "x", "v": 1, "on": True}, {"k": "y", "v": 2}, {"k": "x", "v": 3, "on": False}],
    "u": "Äß日🎉é", "big": 12345678901, "odd": "a\"b'c\\d\ne\tf\u00a0g\u200b",
}
PIECES = [
    # White space.
    "a\n{% if yes %}\nb\n{% endif %}\nc\n", "  {% if yes %}x{% endif %}  \n  {{ n }}  \n", "a {%- if yes -%} b {%- endif -%} c",
    "a\n  {# note #}\nb\n {#- note -#} \nc", "x\n\n  {%+ if yes %}y{% endif %}\n", "{% if yes +%}\nz{% endif %}", "a\r\nb\rc\n\n",
    "{% raw %}{{ no }} {% if %}{% endraw %}!", "  {% raw -%}  a  {%- endraw %}\n b", "{{ 1 }}\n{{ 2 -}}\n {{- 3 }}\n", "{#- x -#}", "",
    "a{% set q = 1 %}\n\nb", "{%- for i in xs %}\n  {{ i }}\n{%- endfor %}\n", "\t{% if yes %}\tx{% endif %}", "{ { } } {x}",
    # Literals and operators.
    "{{ 1 + 2 * 3 - 4 }} {{ 7 // 2 }} {{ -7 // 2 }} {{ -7 % 3 }} {{ 7 / 2 }} {{ 6 / 3 }} {{ 2 ** 10 }} {{ 2 ** -1 }}",
    "{{ 1.0 }} {{ 1e16 }} {{ 1e15 }} {{ 0.1 + 0.2 }} {{ 1e-5 }} {{ 123456789.125 }} {{ 3 * 1.5 }} {{ 1_000 }}",
    "{{ 'a' 'b' ~ 1 ~ none ~ true ~ 1.0 }}", "{{ 'x' * 3 }}{{ [1] * 2 }}{{ [1] + [2] }}{{ (1, 2) + (3,) }}", "{{ -f }} {{ +n }} {{ -n|abs }}",
    r"{{ 'a\nb\t\\ \'q\' \x41 \u00e9 \q \101' }}", '{{ "two" }}', "{{ 'a' + 1 }}", "{{ 1 + 'a' }}", "{{ missing + 'a' }}", "{{ 1 / 0 }}",
    "{{ 1 < 2 < 3 }} {{ 1 < 2 > 5 }} {{ 'a' < 'b' }} {{ [1, 2] < [1, 3] }} {{ 1 == 1.0 }} {{ true == 1 }} {{ 'a' != 'b' }}",
    "{{ 1 in xs }} {{ 9 not in xs }} {{ 'ell' in s }} {{ 'a' in d }} {{ 'x' in missing }} {{ not 1 in xs }}", "{{ 1 in 5 }}", "{{ 1 < 'a' }}",
    "{{ yes and 'a' }} {{ no or 'b' }} {{ not yes }} {{ '' or none }} {{ 0 and missing }} {{ yes and not no or no }}",
    "{{ 'a' if yes else 'b' }}{{ 'a' if no }}|{{ 'x' if no else 'y' if yes else 'z' }}", "{{ [1, 'a', none, true, 1.5, [2], {'k': 'v'}] }}", "{{ (1,) }} {{ () }} {{ (1, 2) }} {{ {} }} {{ [] }}",
    "{{ {'a': 1, 'b': [1, 2]} }} {{ {1: 2, true: 3} }}", "{{ odd }}", "{{ [odd] }}", "{{ ['it''s'] }} {{ ['\"'] }} {{ [u] }}", "{{ 1, 2 }}", "{{ 99999999999999999 * 10 }}",
    # Attributes, items, slices.
    "{{ d.a.x[1] }} {{ d['a']['x'][0] }} {{ d.items() | list }} {{ d['items'] }} {{ d.a['x'] | length }} {{ rows[0].k }}", "{{ d.missing }}|{{ d.missing.more }}", "{{ missing }}|{{ missing.more }}",
    "{{ xs[0] }} {{ xs[-1] }} {{ xs[9] }}| {{ xs[1:] }} {{ xs[:-1] }} {{ xs[::-1] }} {{ xs[::2] }} {{ xs[5:] }} {{ xs[-2:] }} {{ xs[2:0:-1] }} {{ xs[-9:9] }}", "{{ s[0] }} {{ s[-1] }} {{ s[1:4] }} {{ s[::-1] }} {{ u[1] }} {{ u[::-1] }} {{ u[2:] }}", "{{ xs.0 }} {{ d.a.x.1 }}", "{{ n[0] }}|{{ none.x }}|{{ 'a'.x }}", "{{ xs['a'] }}|{{ d[[1]] }}", "{{ xs[::0] }}",
    # Methods.
    "[{{ t.strip() }}] [{{ t.lstrip() }}] [{{ t.rstrip() }}] {{ 'xxaxx'.strip('x') }} {{ 'abcba'.lstrip('ab') }} {{ u.strip('Äé') }}", "{{ t.split() }} {{ 'a,b,,c'.split(',') }} {{ 'a,b,c'.split(',', 1) }} {{ 'a,b,c'.rsplit(',', 1) }} {{ t.split(none, 1) }} {{ t.rsplit(none, 1) }} {{ ''.split() }} {{ ''.split(',') }}", "{{ s.startswith('He') }} {{ s.endswith(('x', 'ld')) }} {{ s.upper() }} {{ s.lower() }} {{ u.upper() }} {{ u.lower() }} {{ 'don\\'t stop x2y'.title() }} {{ 'hELLO wORLD'.capitalize() }}", "{{ s.replace('l', 'L') }} {{ s.replace('l', 'L', 1) }} {{ 'ab'.replace('', '-') }} {{ s.find('o') }} {{ s.rfind('o') }} {{ s.find('zz') }} {{ s.count('l') }}", "{{ 'a\\nb\\r\\nc\\n'.splitlines() }} {{ ','.join(words) }} {{ '{} and {}'.format(1, 'x') }} {{ '{0}{1}{0} {k} {{}}'.format('a', 'b', k=none) }}", "{{ d.get('b') }} {{ d.get('zz') }} {{ d.get('zz', 5) }} {{ d.keys() | list }} {{ d.values() | list | length }}", "{% for k, v in d.items() %}{{ k }}={{ v }};{% endfor %}", "{{ xs.append(4) }}", "{{ d.update({}) }}", "{{ d.pop('a') }}", "{{ xs.index(1) }} {{ words.count('b') }}", "{{ 'abc'.removeprefix('a') }} {{ 'abc'.removesuffix('c') }} {{ '12'.isdigit() }} {{ 'a1'.isalpha() }} {{ 'a1'.isalnum() }} {{ ' '.isspace() }}", "{{ ','.join([1]) }}", "{{ s.strip(1) }}", "{{ n.strip() }}", "{{ 'a'.nope() }}",
    # Filters.
    "[{{ t | trim }}] {{ 'xax' | trim('x') }} {{ s | upper }} {{ s | lower }} {{ 'a-b (c d' | title }} {{ s | capitalize }} {{ n | string + '!' }} {{ missing | trim }}|", "{{ xs | length }} {{ u | length }} {{ d | count }} {{ missing | length }} {{ '' | length }}", "{{ n | length }}", "{{ missing | default('x') }} {{ '' | default('x') }}| {{ '' | default('x', true) }} {{ nothing | default('x') }} {{ none | d('y', boolean=true) }} {{ missing | default }}|", "{{ words | join(', ') }} {{ xs | join }} {{ rows | join('-', attribute='k') }} {{ 'abc' | join('.') }}", "{{ xs | first }} {{ xs | last }} {{ empty | first }}| {{ s | first }} {{ s | last }}", "{{ s | list }} {{ d | list }} {{ xs | list }}", "{{ s | replace('o', '0') }} {{ 5 | replace(5, 6) }} {{ s | replace('l', '', 1) }}", "{{ '7' | int }} {{ ' 8 ' | int }} {{ 'x' | int }} {{ 'x' | int(3) }} {{ 2.9 | int }} {{ '2.9' | int }} {{ -2.9 | int }} {{ '1.5' | float }} {{ 'x' | float }} {{ 3 | float }} {{ yes | int }}", "{{ 2.5 | round }} {{ 3.5 | round }} {{ 2.1 | round(method='ceil') }} {{ 5 | round }} {{ -3 | abs }}", "{{ 'a\n\nb\nc' | indent }}|{{ 'a\nb' | indent(2, first=true) }}|{{ 'a\n\nb' | indent(1, blank=true) }}|{{ 'a\nb' | indent('> ') }}",
    "{{ d | tojson }} {{ [1, 1.5, none, true, 'é\"\\\\\n\x7f'] | tojson }} {{ d | tojson(indent=2) }} {{ {} | tojson }} {{ [] | tojson(indent=1) }} {{ (1, 2) | tojson }} {{ 'x' | tojson }}", "{{ d | tojson(sort_keys=true) }} {{ u | tojson(ensure_ascii=true) }} {{ d | tojson(separators=(',', ':')) }} {{ odd | tojson }} {{ {1: 2, none: 3, true: 4} | tojson }} {{ 1e22 | tojson }}", "{{ missing | tojson }}", "{{ (d | items) | list }} {{ d | dictsort | list }} {{ {'B': 2, 'a': 1} | dictsort }} {{ {'B': 2, 'a': 1} | dictsort(true) }} {{ {'x': 2, 'y': 1} | dictsort(by='value') }} {{ {'x': 2, 'y': 1} | dictsort(reverse=true) }}", "{{ xs | sort }} {{ words | sort }} {{ words | sort(case_sensitive=true) }} {{ xs | sort(reverse=true) }} {{ rows | sort(attribute='v', reverse=true) | map(attribute='v') | list }} {{ words | unique | list }} {{ xs | min }} {{ xs | max }} {{ empty | max }}| {{ xs | sum }} {{ rows | sum(attribute='v') }}", "{{ xs | reverse | list }} {{ s | reverse }} {{ words | map('upper') | list }} {{ words | map('replace', 'b', 'x') | list }} {{ rows | map(attribute='k') | join }} {{ rows | map(attribute='on', default='?') | list }} {{ d.a.x | map('string') | list }}", "{{ rows | selectattr('on') | list | length }} {{ rows | selectattr('k', 'equalto', 'x') | map(attribute='v') | list }} {{ rows | rejectattr('on', 'defined') | list | length }} {{ xs | select('gt', 1) | list }} {{ xs | reject('odd') | list }} {{ words | select('in', ['b', 'c']) | list }} {{ [0, 1, '', 'a'] | select | list }}", "{{ ('a<b' | safe) }} {{ ('a<' | safe) + 'b<' }} {{ ('a<' | safe) ~ 'b<' }} {{ '<&\"' | escape }} {{ ('<' | e) | e }} {{ ('a<' | safe | upper) + '<' }}", "{% set g = rows | selectattr('on') %}{{ 'true' if g else 'false' }} {{ g | list | length }} {{ g | list | length }}", "{{ empty | map('upper') | length }}", "{{ s | nope }}", "{{ missing | int }}", "{{ words | map('nope') | list }}", "{{ words|map('trim')|map('upper')|join('+') }}", "{% filter upper %}a{{ s }}{% endfilter %}{% filter trim | replace('a', 'b') %} aa {% endfilter %}",
    "{{ none | selectattr('a') | list }} {{ none | map('upper') | list }} {{ d[missing] }}| {{ xs[missing] }}|", "{{ none | list }}",
    # Tests.
    "{{ missing is defined }} {{ s is defined }} {{ missing is undefined }} {{ nothing is none }} {{ s is none }} {{ d.zz is not defined }} {{ nothing is not none }}", "{{ s is string }} {{ n is string }} {{ d is mapping }} {{ xs is mapping }} {{ xs is iterable }} {{ s is iterable }} {{ n is iterable }} {{ d is iterable }} {{ missing is iterable }} {{ nothing is iterable }}", "{{ xs is sequence }} {{ s is sequence }} {{ d is sequence }} {{ n is sequence }} {{ d.items() is sequence }} {{ n is number }} {{ f is number }} {{ yes is number }} {{ s is number }} {{ n is integer }} {{ yes is integer }} {{ f is float }} {{ yes is boolean }}", "{{ yes is true }} {{ 1 is true }} {{ no is false }} {{ 0 is false }} {{ n is odd }} {{ n is even }} {{ n is divisibleby 7 }} {{ n is divisibleby(3) }} {{ n is eq 7 }} {{ n is equalto(7) }} {{ n is ne 7 }} {{ n is gt 3 }} {{ n is lt(3) }} {{ n is ge 7 }} {{ n is le 6 }} {{ n is sameas 7 }} {{ yes is sameas true }} {{ n is in [7] }} {{ s is in 'x' }}", "{{ 'a' is lower }} {{ 'A' is upper }} {{ s is upper }} {{ range is callable }} {{ s is callable }}", "{{ s is nope }}", "{{ not s is string }} {{ s is not string and yes }} {{ s is string or no }}", "{{ 'x' if s is string else 'y' }}",
    # Loops.
    "{% for x in xs %}{{ loop.index }}{{ loop.index0 }}{{ loop.revindex }}{{ loop.revindex0 }}{{ loop.first }}{{ loop.last }}{{ loop.length }}{{ loop.previtem }}{{ loop.nextitem }}{{ loop.depth }}{{ loop.cycle('a', 'b') }};{% endfor %}", "{% for x in empty %}a{% else %}none{% endfor %}{% for x in missing %}a{% else %}b{% endfor %}", "{% for x in xs if x > 1 %}{{ loop.index }}/{{ loop.length }}:{{ x }} {% else %}no{% endfor %}", "{% for a, b in [[1, 2], [3, 4]] %}{{ a }}{{ b }} {% endfor %}{% for (a, b) in [(1, 2)] %}{{ a + b }}{% endfor %}", "{% for a, b in [[1, 2, 3]] %}{% endfor %}", "{% for c in 'aé' %}[{{ c }}]{% endfor %}{% for k in d %}{{ k }}{% endfor %}", "{% for i in range(5) %}{% if i == 1 %}{% continue %}{% endif %}{% if i == 3 %}{% break %}{% endif %}{{ i }}{% endfor %}", "{% set x = 1 %}{% for i in xs %}{{ x }}{% set x = x + i %}{{ x }} {% endfor %}{{ x }}", "{% set ns = namespace(x=0, l=[]) %}{% for i in xs %}{% set ns.x = ns.x + i %}{% set ns.l = ns.l + [i] %}{% endfor %}{{ ns.x }} {{ ns.l }} {{ ns.zz is defined }}", "{% set d.x = 1 %}", "{% for i in range(3) %}{% for j in range(2) %}{{ loop.index }}{{ loop.depth }}{% endfor %}{{ loop.index }} {% endfor %}", "{{ range(3) | list }} {{ range(1, 7, 2) | list }} {{ range(3, 0, -1) | list }} {{ range(4)[1] }} {{ range(4) | length }}", "{% for i in range(100001) %}{% endfor %}", "{{ range(1000000000) | length }}", "{% for i in 5 %}{% endfor %}", "{% for x in xs %}{% set last = x %}{% endfor %}{{ last is defined }}", "{% if yes %}{% set inner = 1 %}{% endif %}{{ inner }}", "{% for x in xs %}{{ x }}{% if not loop.last %}, {% endif %}{% endfor %}",
    # Macros, blocks, scopes.
    "{% macro m(a, b=2, c='x') %}{{ a }}{{ b }}{{ c }}{% endmacro %}{{ m(1) }} {{ m(1, c='y') }} {{ m(b=3, a=4) }} {{ m() }}|{{ m(1, 2, 3) | upper }}", "{% macro m(a) %}{{ a }}{% endmacro %}{{ m(1, 2) }}", "{% macro m(a) %}{{ a }}{% endmacro %}{{ m(z=1) }}", "{% macro f(n) %}{{ n }}{% if n > 0 %} {{ f(n - 1) }}{% endif %}{% endmacro %}{{ f(4) }}", "{% set x = 1 %}{% macro m() %}{{ x }}{% endmacro %}{% set x = 2 %}{{ m() }}", "{% macro m() %}{% set x = 5 %}{% endmacro %}{{ m() }}{{ x is defined }}", "{% for i in xs %}{% macro m() %}{{ i }}{% endmacro %}{{ m() }}{% endfor %}", "{{ m() }}{% macro m() %}a{% endmacro %}", "{% set x %}a {{ n }} b{% endset %}[{{ x }}]{% set y | upper | trim %} q {% endset %}[{{ y }}]", "{% set a, b = 1, 2 %}{{ a }}{{ b }}{% set c = 1, 2 %}{{ c }}", "{% with a = 1, b = n %}{{ a }}{{ b }}{% endwith %}{{ a is defined }}", "{% set ns = namespace() %}{% set ns.a = 'x' %}{{ ns.a }}{{ ns['a'] }}", "{{ dict(a=1, b='x') }} {{ namespace(a=1).a }}", "{% generation %}a{{ n }}{% endgeneration %}b{% for x in xs %}{% generation %}<{{ x }}{{ loop.index }}>{% set q = 1 %}{% endgeneration %}{% endfor %}{{ q is defined }}", "{{ raise_exception('no ' ~ n) }}", "{{ strftime_now('%Y-%m-%d %H:%M %b %B') }}", "{% if no %}{{ raise_exception('x') }}{% elif n > 5 %}big{% else %}small{% endif %}", "{% if no, yes %}t{% endif %}", "{{ caller() }}", "{{ s() }}",
    # Not Jinja, or not in a chat template.
    "{% if yes %}", "{{ 1 +", "{{ }}", "{% for x %}{% endfor %}", "{% endif %}", "{% if yes %}{% endfor %}", "{{ (1 }}", "{{ 1) }}", "{{ 'a }}", "{# a", "{% set 1 = 2 %}", "{% set none = 2 %}", "{% do xs %}", "{% break %}", "{{ a b }}", "{{ a..b }}", "{{ [1, }}", "{{ x is }}", "{{ 1 | }}", "{% %}", "{{ s is string is defined }}", "{{ f(a=1, 2) }}", "{% macro m(a, %}{% endmacro %}", "{{ 1 if }}", "{{ ! }}", "{% nope %}",
]


def main():
    cases = {"families": [], "pieces": {"variables": VALUES, "cases": []}}
    for family, source in FAMILIES.items():
        for name, given in CONVERSATIONS.items():
            variables = {**TOKENS, "tools": None, "documents": None, "add_generation_prompt": False, **given}
            cases["families"].append({"family": family, "conversation": name, "given": given, **render(source, variables)})
    cases["templates"] = FAMILIES
    cases["special_tokens"] = TOKENS
    for source in PIECES:
        cases["pieces"]["cases"].append({"template": source, **render(source, VALUES)})
    (HERE / "chat_cases.json").write_text(json.dumps(cases, ensure_ascii=False, indent=1) + "\n")


main()
