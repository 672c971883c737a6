/** Advisors for the {@code ChatClient} of Spring AI. */
package palimpsest.springai;
