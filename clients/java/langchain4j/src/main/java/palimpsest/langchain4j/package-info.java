/** The context of the AI services of LangChain4j. */
package palimpsest.langchain4j;
