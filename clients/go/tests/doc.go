// Package tests has the tests of the module with the SDKs of Anthropic and OpenAI.
package tests
