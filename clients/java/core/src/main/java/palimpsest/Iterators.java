package palimpsest;

import com.fasterxml.jackson.databind.node.ObjectNode;
import java.util.Iterator;
import java.util.List;
import java.util.Spliterator;
import java.util.Spliterators;
import java.util.stream.Stream;
import java.util.stream.StreamSupport;

/** Streams of results that are read on demand. */
final class Iterators {
    private Iterators() {}

    static Stream<ObjectNode> stream(Iterator<ObjectNode> items) {
        return StreamSupport.stream(Spliterators.spliteratorUnknownSize(items, Spliterator.ORDERED), false);
    }

    /** Returns the items of all pages of a list. */
    static Stream<ObjectNode> pages(Http http, Request request, Options options, String items) {
        return stream(new Iterator<>() {
            private String token = "";
            private boolean last;
            private Iterator<ObjectNode> page = List.<ObjectNode>of().iterator();

            @Override
            public boolean hasNext() {
                while (!page.hasNext() && !last) {
                    ObjectNode reply = http.send(request.page(token), options);
                    page = Json.objects(reply.path(items)).iterator();
                    token = reply.path("next_page_token").asText("");
                    last = token.isEmpty();
                }
                return page.hasNext();
            }

            @Override
            public ObjectNode next() {
                hasNext();
                return page.next();
            }
        });
    }
}
