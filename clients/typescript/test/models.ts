// The models of the AI SDK with its providers of Anthropic and OpenAI, on the fake provider.

import { createAnthropic } from "@ai-sdk/anthropic";
import { createOpenAI } from "@ai-sdk/openai";

/** Returns a function for each API, which returns a model of a provider by its name. */
export function modelsOf(url: string) {
  const baseURL = `${url}/v1`;
  const anthropic = createAnthropic({ baseURL, apiKey: "key" });
  const openai = createOpenAI({ baseURL, apiKey: "key" });
  return {
    anthropic: (name: string) => anthropic(name),
    chat: (name: string) => openai.chat(name),
    responses: (name: string) => openai(name),
  };
}
