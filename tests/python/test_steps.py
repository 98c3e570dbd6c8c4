"""What may step a module that zeepo has, and what is kept between two steps."""

import pytest
import torch
from models import Plain, batch, loss_of, make
from runs import same_weights

import zeepo

def adamw(model):
    return torch.optim.AdamW(model.parameters(), lr=3e-3)


def test_a_step_before_all_micro_steps_is_an_error_and_keeps_their_gradients():
    def run(steps_early):
        model = make(Plain)
        opt = adamw(model)
        zeepo.init(model, opt, grad_accum=3)
        for number in range(9):
            loss_of(model, *batch(Plain, number)).backward()
            if number % 3 == 2:
                opt.step()
            elif steps_early:
                with pytest.raises(zeepo.Error, match=f"after {number % 3 + 1} of the 3 .*grad_accum=3"):
                    opt.step()
        zeepo.close()
        return model

    assert same_weights(run(True), run(False))
