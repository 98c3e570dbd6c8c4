// What a program that trains or runs its own model needs: include this, and link the target zeepo_train.
//
// A model is a Module made of layers and ops. A Session is one rank: threads and memory. An Engine owns the model's
// weights, gradients and optimizer states, and runs the steps. examples/mnist shows all three.
#pragma once

#include "zeepo/base/error.h"
#include "zeepo/base/rng.h"
#include "zeepo/base/size.h"
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
#include "zeepo/binding/model_engine.h"
#include "zeepo/zero/rank_report.h"
#include "zeepo/zero/session.h"
