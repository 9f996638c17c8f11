package dev.osb.wire;

import java.util.Map;

/** A type of the protocol. */
public interface WireType {
    /** The fields under the names they have on the wire, without those that are null. */
    Map<String, Object> toJson();
}
