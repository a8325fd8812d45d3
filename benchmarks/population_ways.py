"""Ways to train many CIFAR-10-quick networks at once on a GPU: milliseconds a step and a network.

python benchmarks/population_ways.py --out results/population-ways.json
"""

import time
import traceback

import torch
from _record import arguments, record
from torch import nn
from torch.nn.functional import conv2d, cross_entropy, relu

from membound.zoo import cifar10_quick

BATCH = 100
LR, MOMENTUM, DECAY = 1e-3, 0.9, 4e-3


class Data:
    def __init__(self):
        g = torch.Generator(device="cuda").manual_seed(0)
        self.images = torch.randint(
            0, 256, (50_000, 3, 32, 32), dtype=torch.uint8, device="cuda", generator=g
        )
        self.labels = torch.randint(0, 10, (50_000,), device="cuda", generator=g)
        self.mean = self.images[:1000].float().mean(0)

    def batch(self, index):
        return self.images[index].float() - self.mean, self.labels[index]


def sgd_(weights, gradients, velocities):
    with torch.no_grad():
        gradients = torch._foreach_add(gradients, weights, alpha=DECAY)
        torch._foreach_mul_(velocities, MOMENTUM)
        torch._foreach_add_(velocities, gradients, alpha=LR)
        torch._foreach_sub_(weights, velocities)


class Single:
    """One ordinary network and its step."""

    def __init__(self, data, channels_last=False, fetch=None):
        self.net = cifar10_quick().cuda()
        self.forward = self.net
        self.data, self.channels_last = data, channels_last
        if channels_last:
            self.net.to(memory_format=torch.channels_last)
        self.weights = list(self.net.parameters())
        self.velocities = [torch.zeros_like(w) for w in self.weights]
        self.index = torch.randint(0, 50_000, (BATCH,), device="cuda")

    def step(self, update=True):
        x, y = self.data.batch(self.index)
        if self.channels_last:
            x = x.contiguous(memory_format=torch.channels_last)
        loss = cross_entropy(self.forward(x), y)
        gradients = torch.autograd.grad(loss, self.weights)
        if update:
            sgd_(self.weights, gradients, self.velocities)
        return gradients


class Streams:
    """Every network on a stream of its own, all in one graph."""

    def __init__(self, data, members, channels_last=False, streams=None, compiled=False, joint=False):
        self.members = [Single(data, channels_last) for _ in range(members)]
        if compiled:
            shared = torch.compile(
                lambda w, x: torch.func.functional_call(self.members[0].net, w, (x,)), dynamic=False
            )
            for m in self.members:
                w = dict(m.net.named_parameters())
                m.forward = lambda x, w=w: shared(w, x)
        self.streams = [torch.cuda.Stream() for _ in range(streams or members)]
        self.joint = joint

    def step(self):
        main = torch.cuda.current_stream()
        found = []
        for s in self.streams:
            s.wait_stream(main)
        for number, member in enumerate(self.members):
            with torch.cuda.stream(self.streams[number % len(self.streams)]):
                found += member.step(update=not self.joint)
        for s in self.streams:
            main.wait_stream(s)
        if self.joint:
            sgd_(
                [w for m in self.members for w in m.weights],
                found,
                [v for m in self.members for v in m.velocities],
            )


class Vmapped:
    """torch.func: vmap over stacked parameters."""

    def __init__(self, data, members):
        nets = [cifar10_quick().cuda() for _ in range(members)]
        params, _ = torch.func.stack_module_state(nets)
        self.weights = [p.detach() for p in params.values()]
        self.velocities = [torch.zeros_like(w) for w in self.weights]
        self.names, self.net, self.data = list(params), nets[0], data
        self.index = torch.randint(0, 50_000, (members, BATCH), device="cuda")

    def step(self):
        x, y = self.data.batch(self.index)

        def loss(weights, x, y):
            out = torch.func.functional_call(self.net, dict(zip(self.names, weights, strict=True)), (x,))
            return cross_entropy(out, y)

        gradients = torch.func.vmap(torch.func.grad(loss))(self.weights, x, y)
        sgd_(self.weights, gradients, self.velocities)


class Grouped:
    """Channels side by side: grouped convolutions and batched products."""

    def __init__(self, data, members, channels_last=False):
        self.m, self.data, self.channels_last = members, data, channels_last
        nets = [cifar10_quick().cuda() for _ in range(members)]
        self.net = nets[0]
        params, _ = torch.func.stack_module_state(nets)
        self.weights = [p.detach().requires_grad_() for p in params.values()]
        self.velocities = [torch.zeros_like(w) for w in self.weights]
        self.index = torch.randint(0, 50_000, (BATCH, members), device="cuda")

    def forward(self, x):
        m, net = self.m, self.net
        c1, b1, c2, b2, c3, b3, f1, d1, f2, d2 = self.weights
        if self.channels_last:
            x = x.contiguous(memory_format=torch.channels_last)
        x = relu(net.pool1(conv2d(x, c1.flatten(0, 1), b1.flatten(), padding=2, groups=m)))
        x = net.pool2(relu(conv2d(x, c2.flatten(0, 1), b2.flatten(), padding=2, groups=m)))
        x = net.pool3(relu(conv2d(x, c3.flatten(0, 1), b3.flatten(), padding=2, groups=m)))
        x = x.reshape(BATCH, m, -1).transpose(0, 1)
        x = torch.baddbmm(d1[:, None], x, f1.transpose(1, 2))
        return torch.baddbmm(d2[:, None], x, f2.transpose(1, 2))

    def step(self):
        x, y = self.data.batch(self.index)
        out = self.forward(x.flatten(1, 2))
        loss = cross_entropy(out.flatten(0, 1), y.t().flatten(), reduction="sum") / BATCH
        gradients = torch.autograd.grad(loss, self.weights)
        sgd_(self.weights, gradients, self.velocities)


class Batched:
    """Convolutions as im2col and batched matrix products."""

    def __init__(self, data, members):
        self.inner = Grouped(data, members)
        self.m = members

    def conv(self, x, w, b):  # x [M, N, C, H, W]
        m, n, c, h, wide = x.shape
        cols = nn.functional.unfold(x.flatten(0, 1), 5, padding=2).view(m, n, c * 25, h * wide)
        cols = cols.permute(0, 2, 1, 3).reshape(m, c * 25, n * h * wide)
        out = torch.baddbmm(b[:, :, None], w.flatten(2), cols).view(m, -1, n, h, wide)
        return out.transpose(1, 2).contiguous()

    def pool(self, pool, x):
        return pool(x.flatten(0, 1)).unflatten(0, x.shape[:2])

    def step(self):
        inner = self.inner
        c1, b1, c2, b2, c3, b3, f1, d1, f2, d2 = inner.weights
        x, y = inner.data.batch(inner.index.t())
        net = inner.net
        x = relu(self.pool(net.pool1, self.conv(x, c1, b1)))
        x = self.pool(net.pool2, relu(self.conv(x, c2, b2)))
        x = self.pool(net.pool3, relu(self.conv(x, c3, b3)))
        x = torch.baddbmm(d1[:, None], x.flatten(2), f1.transpose(1, 2))
        x = torch.baddbmm(d2[:, None], x, f2.transpose(1, 2))
        loss = cross_entropy(x.flatten(0, 1), y.flatten(), reduction="sum") / BATCH
        sgd_(inner.weights, torch.autograd.grad(loss, inner.weights), inner.velocities)


def captured(way):
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        for _ in range(3):
            way.step()
    torch.cuda.current_stream().wait_stream(side)
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        way.step()
    return graph.replay


def measure(step, seconds=1.0):
    for _ in range(5):
        step()
    torch.cuda.synchronize()
    best, until = float("inf"), time.monotonic() + seconds
    while time.monotonic() < until:
        begun = time.perf_counter()
        for _ in range(20):
            step()
        torch.cuda.synchronize()
        best = min(best, (time.perf_counter() - begun) / 20)
    return best * 1000


def main():
    parser = arguments(__doc__)
    parser.add_argument("--out", default="results/population-ways.json")
    options = parser.parse_args()
    torch.backends.cudnn.benchmark = True
    data = Data()
    ways = {
        ("eager, one network", 1): lambda: Single(data).step,
        ("graph, one network", 1): lambda: captured(Single(data)),
        ("graph, one network, channels last", 1): lambda: captured(Single(data, True)),
    }
    for m in (5, 20, 60):
        ways |= {
            ("streams", m): lambda m=m: captured(Streams(data, m)),
            ("streams, joint update", m): lambda m=m: captured(Streams(data, m, joint=True)),
            ("streams, joint, channels last", m): lambda m=m: captured(Streams(data, m, True, joint=True)),
            ("vmap", m): lambda m=m: captured(Vmapped(data, m)),
            ("grouped", m): lambda m=m: captured(Grouped(data, m)),
            ("im2col", m): lambda m=m: captured(Batched(data, m)),
        }
    ways["grouped, channels last", 20] = lambda: captured(Grouped(data, 20, True))
    ways["streams, joint, 8 streams", 20] = lambda: captured(Streams(data, 20, streams=8, joint=True))
    ways["streams, joint, compiled", 20] = lambda: captured(Streams(data, 20, joint=True, compiled=True))
    rows = []
    for tf32 in (True, False):
        torch.backends.cudnn.allow_tf32 = torch.backends.cuda.matmul.allow_tf32 = tf32
        for (name, m), make in ways.items():
            if not tf32 and (m == 60 or "8 streams" in name):
                continue
            try:
                begun = time.monotonic()
                ms = measure(make())
                row = {
                    "way": name,
                    "networks": m,
                    "tf32": tf32,
                    "ms_a_step": ms,
                    "ms_a_network": ms / m,
                    "setup_s": time.monotonic() - begun,
                }
            except Exception as error:
                traceback.print_exc(limit=3)
                row = {"way": name, "networks": m, "tf32": tf32, "error": str(error).splitlines()[0][:200]}
            print({k: round(v, 4) if isinstance(v, float) else v for k, v in row.items()}, flush=True)
            rows.append(row)
            torch.cuda.synchronize()
            torch.cuda.empty_cache()
    record(options.out, {"batch": BATCH, "rows": rows})


if __name__ == "__main__":
    main()
