#pragma once
// The interface of the library coracle_train: training jobs and their data.

#include <coracle/coracle.h>
#include <coracle/train/data/data_source.h>
#include <coracle/train/run/saved_model.h>
#include <coracle/train/run/trainer.h>
