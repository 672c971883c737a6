// Package sdktest tests the module with the SDKs of Anthropic and OpenAI, its README and its examples.
package sdktest
