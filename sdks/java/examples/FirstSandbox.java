// Runs a command, some code and a file in a sandbox:
//
//     java -cp osb-sandbox-0.1.0.jar FirstSandbox.java

import dev.osb.Output;
import dev.osb.Sandbox;

public class FirstSandbox {
    public static void main(String[] arguments) {
        String image = System.getenv().getOrDefault("IMAGE", "python:3.12");
        try (Sandbox sandbox = Sandbox.create(image)) {
            Output output = sandbox.commands().run("echo 'Hello Sandbox!'");
            System.out.println(output.stdout().strip() + " exit code " + output.exitCode());

            sandbox.code().run("x = 20");
            System.out.println("x + 1 is " + sandbox.code().run("x + 1").text());

            sandbox.files().write("/tmp/data.csv", "a,b\n1,2\n");
            System.out.println(sandbox.commands().run("wc -l < /tmp/data.csv").stdout().strip() + " lines");
        }
    }
}
