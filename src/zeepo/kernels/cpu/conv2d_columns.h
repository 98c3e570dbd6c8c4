// An image as a matrix whose product with the weights is the convolution: row (c, i, j) holds, for every place of the
// kernel, the pixel under its tap (i, j) in channel c; zero in the padding.
#pragma once

#include "zeepo/kernels/cpu/conv2d_shape.h"

namespace zeepo {

void image_to_columns(const Conv2dShape& shape, const float* image, float* columns);
// The gradient of that: adds every element of columns to the pixel it came from.
void add_columns_to_image(const Conv2dShape& shape, const float* columns, float* image);

}  // namespace zeepo
