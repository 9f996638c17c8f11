package dev.osb;

import java.util.Iterator;
import java.util.List;
import java.util.NoSuchElementException;
import java.util.function.IntFunction;
import java.util.stream.Stream;
import java.util.stream.StreamSupport;

/**
 * The items of one page after the other, each asked for when it is read.
 *
 * @param <T> what is listed
 */
public final class Pages<T> implements Iterable<T> {
    /** One page, and whether another follows. */
    record Page<T>(List<T> items, boolean hasNext) {}

    private final int first;
    private final IntFunction<Page<T>> fetch;

    Pages(Integer first, IntFunction<Page<T>> fetch) {
        this.first = first == null ? 1 : first;
        this.fetch = fetch;
    }

    /** The items as a stream. */
    public Stream<T> stream() {
        return StreamSupport.stream(spliterator(), false);
    }

    @Override
    public Iterator<T> iterator() {
        return new Iterator<>() {
            private int number = first;
            private Iterator<T> items = List.<T>of().iterator();
            private boolean hasMore = true;

            @Override
            public boolean hasNext() {
                while (!items.hasNext() && hasMore) {
                    Page<T> page = fetch.apply(number++);
                    items = page.items.iterator();
                    hasMore = page.hasNext;
                }
                return items.hasNext();
            }

            @Override
            public T next() {
                if (!hasNext()) throw new NoSuchElementException("the list is over");
                return items.next();
            }
        };
    }
}
