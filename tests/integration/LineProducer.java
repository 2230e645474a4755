import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.nio.charset.StandardCharsets;
import java.util.Properties;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;

/** Sends each line of its input as a message, by Kafka's own client: arguments are broker and topic. */
public class LineProducer {
    public static void main(String[] arguments) throws Exception {
        Properties settings = new Properties();
        settings.put("bootstrap.servers", arguments[0]);
        settings.put("key.serializer", "org.apache.kafka.common.serialization.StringSerializer");
        settings.put("value.serializer", "org.apache.kafka.common.serialization.StringSerializer");
        settings.put("compression.type", "gzip");
        int sent = 0;
        try (KafkaProducer<String, String> producer = new KafkaProducer<>(settings);
                BufferedReader lines = new BufferedReader(
                        new InputStreamReader(System.in, StandardCharsets.UTF_8))) {
            for (String line = lines.readLine(); line != null; line = lines.readLine()) {
                producer.send(new ProducerRecord<>(arguments[1], line));
                sent++;
            }
        }
        System.out.println(sent);
    }
}
