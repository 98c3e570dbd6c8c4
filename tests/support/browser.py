"""A browser without a window, by Chromium's own protocol over two pipes: enough to open a page, do things and look."""
import base64
import json
import os
import shutil
import subprocess
import tempfile
import time

NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")


def find_browser():
    return next((path for path in map(shutil.which, NAMES) if path), None)


class Browser:
    """Runs while in a `with`, with one page."""

    def __init__(self, program, width=1280, height=800):
        self.program, self.size = program, f"{width},{height}"
        self.number, self.left, self.faults = 0, b"", []

    def __enter__(self):
        self.profile = tempfile.TemporaryDirectory(ignore_cleanup_errors=True)
        theirs_in, self.out = os.pipe()
        self.input, theirs_out = os.pipe()

        def hand_over():  # the protocol wants 3 and 4; the copies may not overwrite each other
            first, second = os.dup(theirs_in), os.dup(theirs_out)
            os.dup2(first, 3)
            os.dup2(second, 4)

        self.process = subprocess.Popen(
            [self.program, "--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--no-first-run",
             "--remote-debugging-pipe", f"--user-data-dir={self.profile.name}", f"--window-size={self.size}", "about:blank"],
            preexec_fn=hand_over, close_fds=False, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        os.close(theirs_in)
        os.close(theirs_out)
        target = next(one for one in self.call("Target.getTargets")["targetInfos"] if one["type"] == "page")
        self.session = self.call("Target.attachToTarget", targetId=target["targetId"], flatten=True)["sessionId"]
        self.page("Page.enable")
        self.page("Runtime.enable")
        return self

    def __exit__(self, *_):
        self.process.terminate()
        try:
            self.process.wait(timeout=20)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
        os.close(self.out)
        os.close(self.input)
        self.profile.cleanup()

    def call(self, method, session=None, **parameters):
        self.number += 1
        message = {"id": self.number, "method": method, "params": parameters}
        if session:
            message["sessionId"] = session
        os.write(self.out, json.dumps(message).encode() + b"\0")
        while True:
            answer = self.next_message()
            if answer.get("method") == "Runtime.exceptionThrown":
                self.faults.append(answer["params"]["exceptionDetails"])
            if answer.get("id") == self.number:
                assert "error" not in answer, answer
                return answer["result"]

    def next_message(self):
        while b"\0" not in self.left:
            piece = os.read(self.input, 1 << 16)
            assert piece, "the browser has gone"
            self.left += piece
        message, self.left = self.left.split(b"\0", 1)
        return json.loads(message)

    def page(self, method, **parameters):
        return self.call(method, self.session, **parameters)

    def open(self, address):
        self.page("Page.navigate", url=address)

    def value(self, expression):
        """Of JavaScript in the page."""
        result = self.page("Runtime.evaluate", expression=expression, awaitPromise=True, returnByValue=True)
        assert "exceptionDetails" not in result, result
        return result["result"].get("value")

    def until(self, expression, seconds=60):
        end = time.monotonic() + seconds
        while not (value := self.value(expression)):
            assert time.monotonic() < end, f"{expression}: not after {seconds} s"
            time.sleep(0.05)
        return value

    def type(self, text):
        self.page("Input.insertText", text=text)

    def press(self, key, code):
        for kind in ("rawKeyDown", "char", "keyUp"):
            self.page("Input.dispatchKeyEvent", type=kind, key=key, code=key, windowsVirtualKeyCode=code,
                      text="\r" if kind == "char" else "")

    def click(self, selector):
        """With the mouse, in the middle of the element."""
        x, y = self.value(f"(box => [box.x + box.width / 2, box.y + box.height / 2])"
                          f"(document.querySelector({json.dumps(selector)}).getBoundingClientRect())")
        for kind in ("mousePressed", "mouseReleased"):
            self.page("Input.dispatchMouseEvent", type=kind, x=x, y=y, button="left", clickCount=1)

    def screenshot(self, path):
        path.write_bytes(base64.b64decode(self.page("Page.captureScreenshot", format="png")["data"]))
