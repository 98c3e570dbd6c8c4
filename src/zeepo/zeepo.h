// What a program that trains or runs its own model needs: include this, and link the target zeepo::zeepo.
//
// A model is a Module made of layers and ops. init() joins the ranks, chooses the device and makes the tiers; attach()
// gives a model an Engine, which owns its weights, gradients and optimizer states and runs the steps; close() reports,
// and checks that nothing is left. docs/library.md tells more, and examples/mnist shows it.
#pragma once

#include "zeepo/base/error.h"
#include "zeepo/base/rng.h"
#include "zeepo/base/size.h"
#include "zeepo/binding/model_engine.h"
#include "zeepo/data/idx.h"
#include "zeepo/data/sampler.h"
#include "zeepo/data/token_file.h"
#include "zeepo/data/tokenizer.h"
#include "zeepo/model/initial_weights.h"
#include "zeepo/model/language_model.h"
#include "zeepo/nn/layers.h"
#include "zeepo/nn/module.h"
#include "zeepo/ops/activation.h"
#include "zeepo/ops/add.h"
#include "zeepo/ops/attention.h"
#include "zeepo/ops/conv.h"
#include "zeepo/ops/dropout.h"
#include "zeepo/ops/embedding.h"
#include "zeepo/ops/linear.h"
#include "zeepo/ops/loss.h"
#include "zeepo/ops/norm.h"
#include "zeepo/ops/reshape.h"
#include "zeepo/ops/softmax.h"
#include "zeepo/optim/optimizer.h"
#include "zeepo/optim/schedule.h"
#include "zeepo/runtime/init.h"
#include "zeepo/runtime/runtime.h"
#include "zeepo/zero/rank_report.h"
#include "zeepo/zero/session.h"
