# ruff: noqa
# Says hello by itself and answers every question with yes.
# limits: cell_seconds=1.0, call_seconds=0.5, task_seconds=3.0, answer_seconds=2.0

# %%
import json, os, socket, stat, struct, threading


def frame(body):
    head = json.dumps([body, []]).encode()
    return struct.pack(">I", len(head)) + head


turns = 0
answers = ({"ok": {"list": ["double", "fill", "Counter"]}}, {"ok": {"list": [5, {"list": []}]}})


def serve():
    global turns
    for number in range(3, 64):
        try:
            if stat.S_ISSOCK(os.fstat(number).st_mode):
                control = socket.socket(fileno=os.dup(number))
                _, links, *_ = socket.recv_fds(control, 1, 1, socket.MSG_DONTWAIT)
                for link in links:
                    os.write(link, frame("hello") + frame(answers[turns > 0]) * 9)
                    turns += 1
        except OSError:
            pass


def forever():
    while True:
        serve()


threading.Thread(target=forever, daemon=True).start()
