package osb

import (
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptrace"
)

// Tunnel opens a plain byte stream to one of its ports, for whatever does not speak HTTP (extension). The
// context is for opening it; the connection then lives until it is closed. CloseWrite of *net.TCPConn is there
// as well, as `interface{ CloseWrite() error }`.
func (s *Sandbox) Tunnel(ctx context.Context, port int) (net.Conn, error) {
	at, err := s.target(ctx, port)
	if err != nil {
		return nil, err
	}
	// By an HTTP upgrade (RFC 9110, section 7.8), after which net/http hands the connection over.
	var under net.Conn
	trace := &httptrace.ClientTrace{GotConn: func(got httptrace.GotConnInfo) { under = got.Conn }}
	limited, cancel := context.WithCancelCause(ctx)
	request, err := http.NewRequestWithContext(httptrace.WithClientTrace(limited, trace), http.MethodGet, at.base+"/", nil)
	if err != nil {
		cancel(nil)
		return nil, argumentError("%s is not a place to ask: %v", at.base, err)
	}
	at.setHeaders(request.Header)
	request.Header.Set("Connection", "upgrade")
	request.Header.Set("Upgrade", "tcp")
	stop := at.deadline("opening a tunnel", at.config.RequestTimeout, cancel)
	response, err := at.config.Transport.RoundTrip(request)
	stop()
	if err != nil {
		err = failure(limited, at.base, err)
		cancel(nil)
		return nil, err
	}
	got := &answer{Response: response, url: at.base, ctx: limited, cancel: cancel}
	if response.StatusCode != http.StatusSwitchingProtocols {
		return nil, got.refusal("GET /")
	}
	stream, ok := response.Body.(io.ReadWriteCloser)
	if !ok || under == nil {
		got.Close()
		return nil, failedError("the transport", "without upgrades", "use one of net/http")
	}
	return &tunnel{Conn: under, stream: stream, cancel: cancel}, nil
}

// tunnel reads and writes by the stream, which may hold bytes that came with the upgrade, and has the rest from
// the connection under it.
type tunnel struct {
	net.Conn
	stream io.ReadWriteCloser
	cancel context.CancelCauseFunc
}

func (t *tunnel) Read(piece []byte) (int, error)  { return t.stream.Read(piece) }
func (t *tunnel) Write(piece []byte) (int, error) { return t.stream.Write(piece) }

func (t *tunnel) Close() error {
	t.cancel(nil)
	return t.stream.Close()
}

// CloseWrite says that nothing more comes.
func (t *tunnel) CloseWrite() error {
	if half, ok := t.Conn.(interface{ CloseWrite() error }); ok {
		return half.CloseWrite()
	}
	return errors.ErrUnsupported
}
