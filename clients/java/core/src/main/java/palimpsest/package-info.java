/** Client of Palimpsest, the service that owns the context of LLM agents. */
package palimpsest;
