// The models of the AI SDK with its providers of Anthropic and OpenAI, on the fake provider.

import { createAnthropic } from "@ai-sdk/anthropic";
import { createOpenAI } from "@ai-sdk/openai";
import { defaultSettingsMiddleware, type LanguageModel, wrapLanguageModel } from "ai";
import { createAnthropic as createAnthropicV2 } from "ai-5-anthropic";
import { createAnthropic as createAnthropicV3 } from "ai-6-anthropic";

// Version 5 of the AI SDK replaces calls by references to stored responses, which the fake provider does not resolve.
const middleware = defaultSettingsMiddleware({ settings: { providerOptions: { openai: { store: false } } } });

/** Returns a function for each API, which returns a model of a provider by its name. */
export function modelsOf(url: string, apiKey = "key") {
  const baseURL = `${url}/v1`;
  const anthropic = createAnthropic({ baseURL, apiKey });
  const openai = createOpenAI({ baseURL, apiKey });
  return {
    anthropic: (name: string) => anthropic(name),
    chat: (name: string) => openai.chat(name),
    responses: (name: string) => {
      const model = openai(name);
      return String(model.specificationVersion) === "v2" ? wrapLanguageModel({ model, middleware }) : model;
    },
  };
}

/** Returns models of Anthropic whose interface is older than that of the AI SDK. Their names begin with `name`. */
export function olderModelsOf(url: string, name: string): Exclude<LanguageModel, string>[] {
  const settings = { baseURL: `${url}/v1`, apiKey: "key" };
  const older = [createAnthropicV2(settings)(`${name}-v2`), createAnthropicV3(settings)(`${name}-v3`)];
  const current = createAnthropic(settings)(name).specificationVersion;
  return older.filter((model) => model.specificationVersion < current);
}
