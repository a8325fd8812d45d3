/* For Xcode: name this file in the build setting "Objective-C Bridging Header", and Swift can call the classifier. */
#include "classifier.h"
