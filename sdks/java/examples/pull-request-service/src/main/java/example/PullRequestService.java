package example;

import dev.osb.Client;
import dev.osb.CommandOptions;
import dev.osb.CreateOptions;
import dev.osb.OpenSandboxException;
import dev.osb.Output;
import dev.osb.Sandbox;
import java.io.IOException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.time.Duration;
import org.springframework.beans.factory.annotation.Value;
import org.springframework.boot.SpringApplication;
import org.springframework.boot.autoconfigure.SpringBootApplication;
import org.springframework.context.annotation.Bean;
import org.springframework.http.HttpStatus;
import org.springframework.util.FileSystemUtils;
import org.springframework.web.bind.annotation.ExceptionHandler;
import org.springframework.web.bind.annotation.PostMapping;
import org.springframework.web.bind.annotation.RequestBody;
import org.springframework.web.bind.annotation.ResponseStatus;
import org.springframework.web.bind.annotation.RestController;

/**
 * Runs the tests of a pull request in a sandbox: whatever its author wrote runs there and not here.
 *
 * <pre>
 * POST /runs {"repository": "https://...", "ref": "refs/pull/7/head", "command": "make test"}
 * </pre>
 */
@SpringBootApplication
@RestController
public class PullRequestService {
    /** What to run: the head of a pull request, and how its tests are started. */
    public record Run(String repository, String ref, String command) {}

    /** What came of it. */
    public record Result(boolean passed, Integer exitCode, String output) {}

    /** What went wrong, and what to do next. */
    public record Problem(String message, String remedy, String requestId) {}

    private final Client client;
    private final String image;

    public PullRequestService(Client client, @Value("${image:python:3.12}") String image) {
        this.client = client;
        this.image = image;
    }

    public static void main(String[] arguments) {
        SpringApplication.run(PullRequestService.class, arguments);
    }

    @PostMapping("/runs")
    public Result run(@RequestBody Run run) throws IOException, InterruptedException {
        if (run.ref.startsWith("-") || run.repository.startsWith("-")) throw new IllegalArgumentException("that is no ref or repository");
        Path checkout = Files.createTempDirectory("pull-request-");
        CreateOptions options = new CreateOptions().metadata("made_by", "pull-request-service").lifetime(Duration.ofMinutes(20));
        try (Sandbox sandbox = client.create(image, options)) {
            git(checkout, "init", "--quiet");
            git(checkout, "fetch", "--quiet", "--depth", "1", run.repository, run.ref);
            git(checkout, "checkout", "--quiet", "FETCH_HEAD");
            sandbox.files().uploadDirectory(checkout, "/work");
            CommandOptions here = new CommandOptions().cwd("/work").timeout(Duration.ofMinutes(15));
            Output output = sandbox.commands().run(run.command + " 2>&1", here);
            return new Result(output.isSuccess(), output.exitCode(), output.stdout());
        } finally {
            FileSystemUtils.deleteRecursively(checkout);
        }
    }

    private static void git(Path directory, String... arguments) throws IOException, InterruptedException {
        String[] command = new String[arguments.length + 1];
        command[0] = "git";
        System.arraycopy(arguments, 0, command, 1, arguments.length);
        Process git = new ProcessBuilder(command).directory(directory.toFile()).redirectErrorStream(true).start();
        String said = new String(git.getInputStream().readAllBytes());
        if (git.waitFor() != 0) throw new IllegalArgumentException("git " + arguments[0] + ": " + said.strip());
    }

    @ExceptionHandler(IllegalArgumentException.class)
    @ResponseStatus(HttpStatus.BAD_REQUEST)
    public Problem refused(IllegalArgumentException error) {
        return new Problem(error.getMessage(), "name a repository and a ref that this service can fetch", null);
    }

    @ExceptionHandler(OpenSandboxException.class)
    @ResponseStatus(HttpStatus.BAD_GATEWAY)
    public Problem failed(OpenSandboxException error) {
        return new Problem(error.getMessage(), error.remedy(), error.requestId());
    }

    /** By a class of its own, because the service itself needs the client. */
    @org.springframework.context.annotation.Configuration
    static class Connection {
        @Bean
        Client client() {
            return new Client();
        }
    }
}
