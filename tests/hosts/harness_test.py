#!/usr/bin/env python3
"""The harness itself: hosts have names and networks of their own, lose and find each other, and leave nothing behind."""
import signal
import subprocess
import sys
import time
import unittest
from pathlib import Path

import hosts as harness
from hosts import Hosts, marked_processes

REACH = ["-o", "ConnectTimeout=2"]


def within(seconds, condition):
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        if condition():
            return True
        time.sleep(0.05)
    return condition()


class Harness(unittest.TestCase):
    def test_hosts_are_apart_and_reach_each_other(self):
        with Hosts(3) as hosts:
            done = hosts.run("node1", ["ssh", "node3", "hostname"])
            self.assertEqual((done.returncode, done.stdout), (0, "node3\n"), done.stderr)
            done = hosts.run("node1", hosts.mpirun(hosts.hosts, ["hostname"]))
            self.assertEqual(sorted(done.stdout.split()), ["node1", "node2", "node3"], done.stderr)

            def reached(name):
                return hosts.run("node1", ["ssh", *REACH, name, "true"]).returncode == 0
            hosts.cut("node2")
            self.assertFalse(reached("node2"))
            hosts.join("node2")
            self.assertTrue(within(10, lambda: reached("node2")))
            sleeper = hosts.popen("node3", ["sleep", "1000"])
            hosts.kill("node3")
            self.assertNotEqual(sleeper.wait(10), 0)
            self.assertFalse(reached("node3"))
            hosts.start("node3")
            self.assertTrue(within(10, lambda: reached("node3")))

    def test_rates_hold_both_ways(self):
        with Hosts(2) as hosts:
            hosts.limit("node2", "4mbit")
            for words in ("head -c 1000000 /dev/zero | ssh node2 'cat >/dev/null'", "ssh node2 'head -c 1000000 /dev/zero' | wc -c"):
                start = time.monotonic()
                self.assertEqual(hosts.run("node1", ["sh", "-c", words]).returncode, 0)
                self.assertGreater(time.monotonic() - start, 1.5)  # 2 s less what the bucket held
            hosts.limit("node2", None)
            self.assertEqual(hosts.run("node1", ["ssh", "node2", "true"]).returncode, 0)

    def test_nothing_is_left_of_a_harness_that_is_killed(self):
        program = ("import sys, time; sys.path.insert(0, sys.argv[1]); from hosts import Hosts; h = Hosts(2);"
                   "p = h.popen('node2', ['sleep', '1000']); print(h.mark, h.directory, flush=True); time.sleep(1000)")
        child = subprocess.Popen([sys.executable, "-c", program, str(Path(__file__).parent)], stdout=subprocess.PIPE, text=True)
        try:
            mark, directory = child.stdout.readline().split()
            self.assertTrue(within(10, lambda: marked_processes(mark)))  # the mark is there once `sleep` is
        finally:
            child.send_signal(signal.SIGKILL)
            child.wait()
            child.stdout.close()
        self.assertTrue(within(10, lambda: not marked_processes(mark)))
        with Hosts(1):  # removes the directory
            self.assertFalse(Path(directory).exists())


if __name__ == "__main__":
    harness.skip_if_unavailable()
    unittest.main()
