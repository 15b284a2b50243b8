#pragma once
double twice(double x);
