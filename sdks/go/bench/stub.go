package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"strings"
	"time"
)

// serveStub is a server that answers at once, in a process of its own: what a client takes at it is the client's own
// time, and a little of this one's. It speaks as much as the benchmark asks for and prints its address.
func serveStub() {
	now := time.Now().UTC()
	sandbox := map[string]any{
		"id": "s1", "status": map[string]string{"state": "Running"}, "createdAt": now, "expiresAt": now, "entrypoint": []string{"x"},
	}
	few, many := streamOf(1), streamOf(lines)
	answer := func(writer http.ResponseWriter, status int, value any) {
		writer.Header().Set("Content-Type", "application/json")
		writer.WriteHeader(status)
		_ = json.NewEncoder(writer).Encode(value)
	}
	handler := http.HandlerFunc(func(writer http.ResponseWriter, request *http.Request) {
		path := request.URL.Path
		body, _ := io.ReadAll(request.Body)
		switch {
		case strings.Contains(path, "/endpoints/"):
			answer(writer, http.StatusOK, map[string]string{"endpoint": request.Host})
		case request.Method == http.MethodDelete:
			writer.WriteHeader(http.StatusNoContent)
		case request.Method == http.MethodPost && path == "/v1/sandboxes":
			answer(writer, http.StatusAccepted, sandbox)
		case path == "/ping":
		case path == "/command" && bytes.Contains(body, []byte("many")):
			_, _ = writer.Write(many)
		case path == "/command":
			_, _ = writer.Write(few)
		default:
			answer(writer, http.StatusNotFound, map[string]string{"code": "NOT_FOUND", "message": path})
		}
	})
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(listener.Addr())
	log.Fatal(http.Serve(listener, handler))
}

// streamOf is the events of a command that prints so many lines.
func streamOf(count int) []byte {
	var stream bytes.Buffer
	stream.WriteString(`{"type":"init","text":"c1","timestamp":1,"seq":1}` + "\n\n")
	for line := 1; line <= count; line++ {
		fmt.Fprintf(&stream, `{"type":"stdout","text":"%d\n","timestamp":1789000000000,"seq":%d}`+"\n\n", line, line+1)
	}
	fmt.Fprintf(&stream, `{"type":"execution_complete","execution_time":1,"timestamp":1,"seq":%d}`+"\n\n", count+2)
	return stream.Bytes()
}
