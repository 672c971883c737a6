// The models of the AI SDK with its providers of Anthropic and OpenAI, on the fake provider.

import { createAnthropic } from "@ai-sdk/anthropic";
import { createOpenAI } from "@ai-sdk/openai";
import { defaultSettingsMiddleware, wrapLanguageModel } from "ai";

// Version 5 of the AI SDK replaces calls by references to stored responses, which the fake provider does not resolve.
const middleware = defaultSettingsMiddleware({ settings: { providerOptions: { openai: { store: false } } } });

/** Returns a function for each API, which returns a model of a provider by its name. */
export function modelsOf(url: string) {
  const baseURL = `${url}/v1`;
  const anthropic = createAnthropic({ baseURL, apiKey: "key" });
  const openai = createOpenAI({ baseURL, apiKey: "key" });
  return {
    anthropic: (name: string) => anthropic(name),
    chat: (name: string) => openai.chat(name),
    responses: (name: string) => {
      const model = openai(name);
      return String(model.specificationVersion) === "v2" ? wrapLanguageModel({ model, middleware }) : model;
    },
  };
}
