// Serves the files of a directory over HTTP with one selector, until SIGTERM.
import java.io.IOException;
import java.net.InetSocketAddress;
import java.nio.ByteBuffer;
import java.nio.channels.SelectionKey;
import java.nio.channels.Selector;
import java.nio.channels.ServerSocketChannel;
import java.nio.channels.SocketChannel;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;

public class NioServer {
    /** One connection: what it has asked so far, and what it still gets. */
    static final class Client {
        final StringBuilder asked = new StringBuilder();
        ByteBuffer answer;
        boolean stays;
    }

    static String root;

    public static void main(String[] args) throws IOException {
        root = args[0];
        Runtime.getRuntime().addShutdownHook(new Thread(() -> Runtime.getRuntime().halt(0)));
        Selector selector = Selector.open();
        ServerSocketChannel listener = ServerSocketChannel.open();
        listener.bind(new InetSocketAddress("0.0.0.0", Integer.parseInt(args[1])), 511);
        listener.configureBlocking(false);
        listener.register(selector, SelectionKey.OP_ACCEPT);
        while (true) {
            selector.select();
            for (SelectionKey key : selector.selectedKeys()) {
                if (key.isAcceptable()) {
                    accept(selector, listener);
                } else {
                    serve(key);
                }
            }
            selector.selectedKeys().clear();
        }
    }

    static void accept(Selector selector, ServerSocketChannel listener) throws IOException {
        SocketChannel channel;
        while ((channel = listener.accept()) != null) {
            channel.configureBlocking(false);
            channel.register(selector, SelectionKey.OP_READ, new Client());
        }
    }

    static void serve(SelectionKey key) {
        SocketChannel channel = (SocketChannel) key.channel();
        try {
            Client client = (Client) key.attachment();
            if (key.isReadable() && !read(channel, client)) {
                channel.close();
                return;
            }
            write(key, channel, client);
        } catch (IOException error) {
            try {
                channel.close();
            } catch (IOException closed) {
                System.err.println(closed);
            }
        }
    }

    static boolean read(SocketChannel channel, Client client) throws IOException {
        ByteBuffer bytes = ByteBuffer.allocate(4096);
        if (channel.read(bytes) < 0) {
            return false;
        }
        client.asked.append(StandardCharsets.ISO_8859_1.decode(bytes.flip()));
        int end = client.asked.indexOf("\r\n\r\n");
        if (end >= 0 && client.answer == null) {
            String head = client.asked.substring(0, end);
            client.asked.delete(0, end + 4);
            client.stays = head.contains("HTTP/1.1");
            byte[] body = Files.readAllBytes(Path.of(root + head.split(" ")[1]));
            String first = "HTTP/1.1 200 OK\r\nContent-Length: " + body.length + "\r\nConnection: "
                + (client.stays ? "keep-alive" : "close") + "\r\n\r\n";
            byte[] said = first.getBytes(StandardCharsets.ISO_8859_1);
            client.answer = ByteBuffer.allocateDirect(said.length + body.length);
            client.answer.put(said).put(body).flip();
        }
        return true;
    }

    static void write(SelectionKey key, SocketChannel channel, Client client) throws IOException {
        if (client.answer == null) {
            return;
        }
        channel.write(client.answer);
        if (client.answer.hasRemaining()) {
            key.interestOps(SelectionKey.OP_WRITE);
            return;
        }
        client.answer = null;
        if (!client.stays) {
            channel.close();
        } else {
            key.interestOps(SelectionKey.OP_READ);
        }
    }
}
